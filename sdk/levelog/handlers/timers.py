"""`@op.timer`: when a function is called for an object, by when it was called last."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from levelog.edges import Unfinished, essence, flat, handled_object
from levelog.effects import Call
from levelog.handlers.callnames import CHANGED, TIMED
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.forobjects import CallOptions, DecidedHandler, uid_of
from levelog.handlers.injection import Lender
from levelog.handlers.outcomes import as_value, carried, delay, is_ahead, next_call
from levelog.handlers.signatures import require_flag, require_time
from levelog.levels import Level
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest

if TYPE_CHECKING:
    from levelog.handlers.adapters import Adapter

_CODE: Final = "timers 7"
"""Stands for this module in fingerprints: raised when the same calls lead to others."""


class Tick(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a timer, or what it notes of an object: the request of its effect."""

    due: datetime | None = None
    """None: the function is not called."""
    object: dict[str, Any]
    carried: Unfinished | None = None
    """What the call before has left, which this one repeats; None: it is the first."""

    @property
    def is_noted(self) -> bool:
        """The function is not called."""
        return self.due is None


class TimerHandler(DecidedHandler):
    """A function that is called for each object now and then."""

    kind, code, request, suffix = "timer", _CODE, Tick, TIMED
    instead = "what it should write is asked for by a view, which looks again at recheck_at=…, and a reconcile function"

    def __init__(
        self,
        function: Callable[..., Any],
        every: timedelta,
        initial_delay: timedelta,
        options: CallOptions,
        lender: Lender,
        *,
        idle: timedelta | None = None,
        sharp: bool = False,
        recorded: bool = True,
        adapter: "Adapter | None" = None,
    ) -> None:
        """Check a function's signature. Raises OperatorError naming the function and what is wrong."""
        super().__init__(function, options, lender, adapter)
        self.every, self.initial_delay, self.idle, self.sharp = every, initial_delay, idle, sharp
        require_time(self.title, "every", every, LEAST)
        require_time(self.title, "initial_delay", initial_delay, timedelta(0))
        require_flag(self.title, "recorded", recorded)
        self.recorded = recorded
        if not recorded:
            _refuse_recorded(self.name, sharp=sharp, idle=idle)
        self.period = every // MICROSECOND
        """Microseconds, as all times of calls without records are; moments count from 1970."""
        if idle is not None:
            require_time(self.title, "idle", idle, LEAST)
        require_flag(self.title, "sharp", sharp)

    @property
    def names(self) -> Sequence[str]:
        """Without that of its calls if they are not recorded."""
        return super().names if self.recorded else (self.name,)

    @property
    def reads(self) -> Mapping[str, Any]:
        """The time, too."""
        return {"now": datetime, **super().reads}

    @property
    def fingerprint_parts(self) -> Sequence[str]:
        """Its schedule."""
        return (
            value_fingerprint(tuple(str(each) for each in (self.every, self.initial_delay, self.idle, self.sharp))),
        )

    def level(self, parent: Any, read: Mapping[str, Any]) -> Level[Any]:
        """When the function was called last, against when it is due; an adapter looks at what is beside."""
        now: datetime = read["now"]
        calls: list[Call[Tick, Any]] = list(read[self.calls_name][uid_of(parent)])
        before = next((each for each in calls if not each.name), None)
        noted = next((each for each in calls if each.name == CHANGED), None)
        again = None if before is None else next_call(before, self.limits.give_up_after, now)
        level = None if self.adapter is None else self.adapter.look(parent, before, noted, now, read)
        if level is not None and (again is None or before is None or level.desired != before.request.due):
            return level
        if again is not None and before is not None:
            level = Level(desired=before.request.due, actual=as_value(again[1]))
            delay(level, *again, now)
            return level
        changed = None
        if self.idle is not None:
            state = flat(essence(self.noted(parent)))
            known = None if noted is None else flat(essence(self.known(noted.request.object)))
            if noted is None or known != state:
                return Level(desired=state, actual=known)
            if is_ahead(noted.called_at, now, self.idle):
                return Level(desired=state, actual=None)
            changed = noted.called_at
        last = self.last(before, now)
        due = self.due(_created(parent), last, now, changed)
        if now < due:
            return Level(desired=last, actual=last, recheck_at=due)
        return Level(desired=due, actual=last, recheck_at=due + self.every)  # also if it gives up

    def wanted_calls(self, parent: Any, level: Level[Any], *, is_end: bool) -> Sequence[tuple[Tick, str]]:  # noqa: ARG002 - it has none
        """The call that is due, or what is noted of the object."""
        if level.reason and not level.is_asked_for:
            return ()
        if isinstance(level.desired, Mapping):
            return ((Tick(object=self.noted(parent)), CHANGED),)
        return ((Tick(due=level.desired, object=self.handed(parent), carried=carried(level)), ""),)

    def last(self, call: Call[Tick, Any] | None, now: datetime) -> datetime | None:
        """When the last call was made, not before it was due; None: there was none, or the clock was set back since."""
        if call is None:
            return None
        made = max(call.called_at, call.request.due or call.called_at)
        return None if is_ahead(made, now, self.every) else made

    def due(self, created: datetime, last: datetime | None, now: datetime, changed: datetime | None = None) -> datetime:
        """When the call is due that comes next; of several that were missed, the newest.

        Sharp: at whole multiples of `every` after the first; else after the last call. Not before the object has been
        as it is for `idle`, since it `changed`.
        """
        due = created + self.initial_delay
        if is_ahead(created, now, self.every):
            due += (now - due) // self.every * self.every
        if last is not None and last >= due:
            due = last + self.every if not self.sharp else due + ((last - due) // self.every + 1) * self.every
        if changed is not None and self.idle is not None and (wait := changed + self.idle - due) > timedelta(0):
            due += wait if not self.sharp else -(-wait // self.every) * self.every
        return max(due, due + (now - due) // self.every * self.every)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of its code, of what it is given, and of its schedule."""
        return digest(super().fingerprint, str(self.every), str(self.initial_delay))

    def said(self, position: int) -> str:
        """A call by its due time."""
        return f"the call that was due at {moment(position):%Y-%m-%d %H:%M:%S} UTC"

    def first(self, created: datetime, now: int) -> int:
        """When the first call is due for an object that was created then; one that has come if that is far off."""
        first = microseconds(created + self.initial_delay)
        return self.newest(first, now) if is_ahead(created, moment(now), self.every) else first

    def newest(self, first: int, now: int) -> int:
        """The newest due time up to now, of an object whose first one is known and has come."""
        return first + (now - first) // self.period * self.period

    def noted(self, parent: Any) -> dict[str, Any]:
        """What is noted of an object, whose change `idle` waits for; without that, nothing but that it is known."""
        return {} if self.idle is None else handled_object(self.shown(parent))


LEAST: Final = timedelta(seconds=1)
"""Between two calls: each is written to the log and to the tables."""


MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _refuse_recorded(name: str, *, sharp: object, idle: object) -> None:
    """Refuse options of calls that are recorded, for a timer without records. Raises OperatorError."""
    if sharp is not False:
        raise OperatorError(
            f"timer {name}: sharp={sharp!r} says nothing with recorded=False: its calls are always due at multiples "
            "of every=; leave it out"
        )
    if idle is not None:
        raise OperatorError(
            f"timer {name}: idle= has to remember what each object was, and recorded=False remembers nothing of "
            "objects: leave one of the two out"
        )


def microseconds(time: datetime) -> int:
    """A moment as a number, which is quick to count with."""
    return (time - EPOCH) // MICROSECOND


def moment(time: int) -> datetime:
    """The moment that `microseconds` stands for."""
    return EPOCH + time * MICROSECOND


def created_of(body: bytes) -> datetime:
    """When an object was created; 1970 where it does not say. Raises msgspec.ValidationError for what is no object."""
    return _decoder.decode(body).metadata.creationTimestamp or EPOCH


class _Created(Struct):
    class Metadata(Struct):
        creationTimestamp: datetime | None = None  # noqa: N815 - as the API has it

    metadata: Metadata


_decoder: Final = msgspec.json.Decoder(_Created)


def _created(parent: Any) -> datetime:
    if isinstance(parent, Mapping):
        return msgspec.convert(parent["metadata"]["creationTimestamp"], datetime)  # pyright: ignore[reportUnknownArgumentType]
    created: datetime = parent.metadata.creation_timestamp
    return created
