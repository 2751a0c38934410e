"""`@op.daemon`: whether a function has to run for an object, and the effect whose calls are its runs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

import msgspec
from msgspec.structs import replace

from levelog.daemons import Daemon, Run, RunEnd
from levelog.effects import Call, EffectHandler, require_json
from levelog.handlers.callnames import RUN
from levelog.handlers.fingerprints import type_fingerprint
from levelog.handlers.forobjects import FINALIZING, CallOptions, DecidedHandler, uid_of
from levelog.handlers.indexers import MARK, IndexHandler
from levelog.handlers.injection import Lender, live_types, shown
from levelog.handlers.outcomes import CallResult
from levelog.handlers.signatures import require_time
from levelog.handlers.viewhandlers import ViewHandler
from levelog.levels import Level
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest

if TYPE_CHECKING:
    from levelog.handlers.adapters import Adapter

GRACE: Final = timedelta(seconds=5)
"""How long a daemon may take to end, by default."""
WANTED: Final = "wanted"
"""By this name, its view reads the objects that it has to run for."""
_CODE: Final = "daemons 1"
"""Stands for this module in fingerprints: raised when the same runs lead to others."""


class DaemonHandler(DecidedHandler):
    """A function that runs for each object."""

    kind, instead = "daemon", "save what it has to know by daemon.save(…)"
    code, request, suffix, is_lasting = _CODE, Run, RUN, True

    def __init__(
        self,
        function: Callable[..., Any],
        grace: timedelta,
        options: CallOptions,
        lender: Lender,
        indices: Collection[str],
        views: Mapping[Callable[..., Any], ViewHandler],
        adapter: "Adapter | None" = None,
    ) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong.

        `views` are those of the operator, by function, also those that are defined below the daemon.
        """
        super().__init__(function, options, lender, adapter)
        self.result, self.waits_for_finalizer = RunEnd | None, adapter is not None
        self.limits = replace(self.limits, give_up_after=None)
        self.views = views
        self.grace = grace
        if not self.is_async and adapter is None:
            raise OperatorError(f"daemon {self.name}: is not async: write async def, since a thread cannot be stopped")
        require_time(self.title, "grace", grace)
        self.itself = self._told[0] if self._told else None
        """The parameter that takes the Daemon; None: it has none, and is cancelled when it has to end."""
        types = get_args(self.hints[self.itself]) if self.itself else ()
        self.state_type: Any = types[1] if types else Any
        if types and types[0] != (hint := self.hints.get(self.parameter)):
            raise OperatorError(
                f"{self.title}: {self.itself!r} is of {shown(types[0])}, and the object is {shown(hint)}"
            )
        require_json(f"{self.title}: its state is", self.state_type)
        self.indices = live_types(self.title, self.given, indices)
        """Types of the values of its live indices, by parameter."""

    @property
    def wanted_name(self) -> str:
        """Name of the index of the objects that it has to run for, by their uids."""
        return f"{MARK}daemon/{self.name}"

    def tells(self, parameter: str) -> bool:
        """Tell whether a parameter takes the Daemon."""
        hint = self.hints.get(parameter)
        return (get_origin(hint) or hint) is Daemon

    def require_hint(self, name: str) -> None:
        """Every class of a Daemon will do, as far as its types do."""

    def may_ask_for(self, view: ViewHandler) -> bool:
        """Tell whether it may wait for levels of a view."""
        is_of_object = view.resource.group_resource == self.reader.resource.group_resource
        return self.itself is not None and is_of_object and view in self.views.values()

    def view_of(self, function: Callable[..., Any]) -> str:
        """Name of the view of a function whose level it may wait for. Raises OperatorError for any other function."""
        name = getattr(function, "__name__", function)
        if function is self.function:
            raise OperatorError(
                f"daemon {self.name}: it cannot wait for its own level, {name!r}, which settles for as long as it runs"
            )
        view = self.views.get(function) if callable(function) else None
        if view is None:
            raise OperatorError(
                f"daemon {self.name}: level takes a function of @op.view or @op.children of operator "
                f"{self.operator!r}, and {name!r} is none"
            )
        if not self.may_ask_for(view):
            mine, other = self.reader.resource.group_resource, view.resource.group_resource
            raise OperatorError(f"daemon {self.name} is of {mine}, and the view {view.name!r} is of {other}")
        return view.name

    def is_finished(self, end: RunEnd) -> bool:
        """Tell whether no run follows on one that ended so, as long as the object stays."""
        if self.adapter is None or not end.is_finished:
            return end.is_finished
        return msgspec.convert(end.state or {}, CallResult).left is None

    @property
    def holds_object(self) -> bool:
        """Whether its objects stay until the run has ended: those of an adapter do."""
        return self.waits_for_finalizer

    @property
    def fingerprint_parts(self) -> Sequence[str]:
        """Whose finalizer it waits for."""
        return (self.beside[FINALIZING].fingerprint,) if FINALIZING in self.beside else ()

    def level(self, parent: Any, read: Mapping[str, Any]) -> Level[Any]:
        """The run that has to come to an end, against the last one that did."""
        uid = uid_of(parent)
        ended: list[Call[Run, RunEnd | None]] = list(read[self.calls_name][uid])
        last = ended[0].request.number if ended else 0
        is_finished = bool(ended) and (ended[0].result is None or self.is_finished(ended[0].result))
        if is_finished or not read[WANTED][uid]:
            return Level(desired=last, actual=last)
        level = Level[Any](desired=last + 1, actual=last)
        if FINALIZING in self.beside and "waits" in read[FINALIZING][uid]:
            level.reason = "waits for its finalizer to be put on"
        return level

    def wanted_calls(self, parent: Any, level: Level[Any], *, is_end: bool) -> Sequence[tuple[Run, str]]:  # noqa: ARG002 - only a run is asked for
        """The run."""
        return () if level.reason else ((Run(number=level.desired), ""),)

    def effect(self) -> EffectHandler:
        """The effect whose call is a run of the daemon."""

        async def run(request: Run) -> RunEnd | None:
            raise OperatorError(f"daemon {self.name} runs in an actuator, not in a call for run {request.number}")

        made = self.made_effect(run, type_fingerprint(self.state_type))
        made.daemon = self
        return made

    def wanted_index(self) -> IndexHandler:
        """The objects that it has to run for, by their uids: those that fit, and that nobody deletes."""
        reader = self.reader

        def entries(found: Any) -> Iterator[tuple[str, Any]]:
            content = found if reader.is_plain else msgspec.to_builtins(found)
            if not content["metadata"].get("deletionTimestamp"):
                yield content["metadata"]["uid"], content

        returns = Iterator[tuple[str, Any]]
        code = digest(_CODE, self.name)
        return IndexHandler(entries, reader, returns, name=self.wanted_name, code=code, errors="ignore")
