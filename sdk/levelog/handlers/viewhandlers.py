"""Views and reconcile functions, checked when the file is loaded, before anything runs."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args, get_origin

from msgspec import Struct

from levelog.handlers.fingerprints import fingerprint, type_fingerprint
from levelog.handlers.indexers import IndexHandler, ObjectIndex, require_levels, require_resources
from levelog.handlers.injection import Given, Lender, injections, require_defined
from levelog.handlers.readers import ObjectReader, is_mapping, object_reader, require_resource
from levelog.handlers.signatures import (
    parameters,
    refuse_circle,
    refuse_coroutine,
    require_flag,
    require_index,
    require_level,
    require_time,
    shown,
    type_hints,
)
from levelog.intents import Intent, Verb
from levelog.levels import Level
from levelog.resources import ResourceBase, ResourceType, refuse_external
from levelog.selectors import Selector
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.objects import GroupResource

RECONCILE_TIME: Final = timedelta(seconds=30)
"""Default time limit of a reconcile function."""

VIEW_TIME: Final = timedelta(seconds=5)
"""Default time limit of a view, and the one of index functions and filters."""
MOST_VIEW_TIME: Final = timedelta(seconds=10)
"""A view holds up its process, whose leases end after 15 s without a renewal."""

Anywhere: TypeAlias = Literal["anywhere"]
"""Stands among verbs: a parent that has a namespace may write to objects outside of it, too."""

Writes: TypeAlias = Mapping[type[ResourceBase], Collection[Verb | Anywhere]]
"""What `@op.reconcile` takes: `{Pod: ["apply", "delete"], Node: ["patch", "anywhere"]}`."""

_ANYWHERE: Final[Anywhere] = "anywhere"

VERBS: Final[tuple[Verb, ...]] = tuple(verb for verb in get_args(Verb) if verb != "call")
"""A call writes no object. An event is named by the class of the objects that it is about."""


class WrittenClass(Struct, frozen=True):
    """One class and the verbs of the intents for it, sorted."""

    cls: type[ResourceBase]
    verbs: tuple[Verb, ...]
    is_anywhere: bool = False
    """Also outside of the parent's namespace."""

    @property
    def resource(self) -> ResourceType:
        """What is written."""
        return self.cls.resource_type

    def __str__(self) -> str:
        return f"{self.cls.__name__}: {_listed([*self.verbs, *([_ANYWHERE] if self.is_anywhere else [])])}"


class IndexParameter(Struct, frozen=True):
    """A parameter through which a view reads an index."""

    name: str
    index: IndexHandler
    key_type: Any
    value_type: Any


class ViewHandler:
    """A view function: its parent, the indices and objects that it reads, and what else it is given."""

    also: ClassVar[tuple[Given, ...]] = ()
    """What its function may take beside what all views may."""
    is_of_deleted: bool = False
    """Whether its parents are what stands for deleted objects."""
    writes_once: bool = False
    """Whether its rounds ask for what is not done yet; its reconcile function may take `is_written`."""
    is_made: bool = False
    """Whether levelog made it for a handler, a timer or a daemon: calls are logged, levels only at debug."""
    stands_on: tuple[str, ...] = ()
    """Views whose levels alone it is given; empty: all."""

    def __init__(
        self,
        function: Callable[..., Any],
        known: Mapping[str, IndexHandler],
        selector: Selector,
        lender: Lender,
        *,
        deleting: bool = False,
        reads: Iterable[type[ResourceBase]] = (),
        levels_of: Iterable[type[ResourceBase] | str] = (),
        of: type[ResourceBase] | None = None,
        timeout: timedelta = VIEW_TIME,
    ) -> None:
        """Check the signature of a view function; `known` are the indices that it may ask for by name.

        Raises OperatorError naming the function and the parameter.
        """
        self.name = function.__name__
        self.function = function
        where = f"view {self.name}"
        refuse_coroutine(function, "view")
        require_flag(where, "deleting", deleting)
        require_time(where, "timeout", timeout)
        if timeout > MOST_VIEW_TIME:
            raise OperatorError(
                f"{where}: timeout={timeout!r} is above {MOST_VIEW_TIME.total_seconds():g} s, and its process does "
                "nothing else meanwhile: compute in an effect what takes longer"
            )
        hints = type_hints(function)
        self.parent_parameter, *rest = parameters(function, "view", "parent")
        hint = hints.get(self.parent_parameter)
        self.reader = object_reader("view", function, self.parent_parameter, hint, selector, of=of)
        self.resource = self.reader.resource
        refuse_external(f"{where}: its parent {self.parent_parameter!r}: ", self.reader.cls)
        refuse_circle(function, "view", hints, (Level,))
        self.given = injections(function, "view", rest, lender, also=self.also)
        require_defined(where, self.given.indices, known)
        self.indices = tuple(
            IndexParameter(name, known[name], *require_index(self.name, name, hint, known[name].types))
            for name, hint in self.given.indices.items()
        )
        self.objects = {cls: ObjectIndex(cls) for cls in require_resources(self.name, reads)}
        """The implicit index of each class in `reads=`."""
        self.levels_of, self.levels_by_name = require_levels(self.name, levels_of)
        """Classes of the objects whose levels it looks up, besides children; views of them, as `operator/view`."""
        self._takes_levels = Given.LEVELS in self.given.given.values()
        self._require_takers(where)
        self.returns = hints.get("return")
        """The return annotation, `Level[T]`."""
        if (get_origin(self.returns) or self.returns) is not Level:
            is_silent = self.returns is None
            said = "is not annotated with what it returns" if is_silent else f"returns {shown(self.returns)}"
            raise OperatorError(f"{where}: {said}; it has to be Level[T]")
        self.timeout = timeout
        self.deleting = deleting
        self.fingerprint = digest(
            fingerprint(function),
            self.reader.fingerprint,
            self.given.fingerprint,
            str(deleting),
            *(index.fingerprint for index in self.sources),
            *(type_fingerprint(parameter.value_type) for parameter in self.indices),
        )

    def _require_takers(self, where: str) -> None:
        """Refuse `reads=` and `levels_of=` that nothing can use, and objects of which none are declared."""
        taker = next((name for name, kind in self.given.given.items() if kind is Given.OBJECTS), None)
        levels = [*(cls.__name__ for cls in self.levels_of), *map(repr, self.levels_by_name)]
        for option, named, is_taken, needed in (
            ("reads", [cls.__name__ for cls in self.objects], taker, "objects: Objects"),
            ("levels_of", levels, self._takes_levels, "levels: Levels"),
        ):
            if named and not is_taken:
                raise OperatorError(
                    f"{where}: {option}=[{', '.join(named)}], but no parameter takes them: add {needed}"
                )
        if taker and not self.objects:
            raise OperatorError(
                f"{where}: parameter {taker!r} is Objects, but the view does not say which: name their classes, "
                "@op.view(reads=[…])"
            )

    @property
    def reads_levels(self) -> bool:
        """Whether it is given how all levels of its parent stand."""
        return self._takes_levels and not self.stands_on

    @property
    def sources(self) -> tuple[IndexHandler, ...]:
        """Every index that the view may read: by parameters, then those of `reads=`."""
        return (*(parameter.index for parameter in self.indices), *self.objects.values())


class ReconcileHandler:
    """A reconcile function of one view."""

    def __init__(
        self,
        function: Callable[..., Any],
        view: ViewHandler,
        writes: Writes | None,
        lender: Lender,
        *,
        timeout: timedelta = RECONCILE_TIME,
    ) -> None:
        """Check the signature of a reconcile function. Raises OperatorError naming the function and the parameter."""
        kind = "reconcile function"
        self.name = function.__name__
        self.function = function
        self.view = view
        require_time(f"{kind} {self.name}", "timeout", timeout)
        self.timeout = timeout
        hints = type_hints(function)
        self.parent_parameter, *rest = parameters(function, kind, "parent")
        self.reader = _reconciled(function, view, self.parent_parameter, hints.get(self.parent_parameter))
        also = (Given.WRITTEN,) if view.writes_once else ()
        self.given = injections(function, kind, rest, lender, also=also)
        for name, given in self.given.given.items():
            if given is Given.LEVEL:
                require_level(self.name, name, hints[name], view.name, view.returns)
        self.writes = None if writes is None else inspect_writes(f"{kind} {self.name}", writes)
        """What it may yield intents for; None: it does not say."""
        self.is_removing = False
        """Whether it only takes off what earlier code has put on, so that most operators need no right for it."""
        self.needs_status = True
        """Whether a status that it writes has to be a subresource."""
        self.is_lasting = False
        """Whether what it asks for is meant to go on, so that the object is as it should be while it does."""
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        """Whether it runs in the event loop; else it runs in a thread."""
        declared = canonical([[write.resource, write.verbs, write.is_anywhere] for write in self.writes or ()])
        self.fingerprint = digest(fingerprint(function), self.reader.fingerprint, self.given.fingerprint, declared)

    def refuse_undeclared(self, intent: Intent, resource: ResourceType) -> None:
        """Raises OperatorError, with the declaration that is missing, for an intent that `writes` do not allow."""
        declared = writes_of(self.writes or (), resource.group_resource)
        if self.writes is None or any(intent.verb in write.verbs for write in declared):
            return
        name = declared[0].cls.__name__ if declared else resource.kind
        others = [str(write) for write in self.writes if write not in declared]
        shown = ", ".join([*others, f"{name}: {_listed([*_verbs(declared), intent.verb])}"])
        raise OperatorError(
            f"{intent.verb} of {resource.kind} {intent.name}: writes= of {self.name} does not name it, so that the "
            f"actuator may lack the right: declare it, @op.reconcile({self.view.name}, writes={{{shown}}}), and grant "
            "what `levelog rbac` prints"
        )

    def refuse_elsewhere(self, intent: Intent, resource: ResourceType, parent: str, target: str) -> None:
        """Raises OperatorError for a target outside of its parent's namespace, unless the function says so."""
        declared = writes_of(self.writes or (), resource.group_resource)
        if not any(each.is_anywhere for each in declared):
            raise OperatorError(
                f"{intent.verb} of {target}: it is not in the namespace of {parent}, which writes there alone. If "
                f"{self.name} is to write elsewhere, declare it: writes={{{resource.kind}: "
                f"{_listed([*_verbs(declared), intent.verb, _ANYWHERE])}}}"
            )


def _reconciled(function: Callable[..., Any], view: ViewHandler, parameter: str, hint: Any) -> ObjectReader:
    """Reader for the parent of a reconcile function, which is the view's; a mapping of it is plain."""
    kind = "reconcile function"
    if is_mapping(hint):
        return ObjectReader(view.reader.cls, view.reader.selector, is_plain=True)
    reader = object_reader(kind, function, parameter, hint, view.reader.selector)
    if reader.resource != view.resource:
        raise OperatorError(
            f"{kind} {function.__name__}: parameter {parameter!r} is {reader.resource.plural}, "
            f"but the view {view.name!r} is of {view.resource.plural}"
        )
    return reader


def inspect_writes(function: str, given: Writes) -> tuple[WrittenClass, ...]:
    """Check what was given. Raises OperatorError naming the function and what is wrong."""
    what = f"{function}: writes="
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f'{what} is {given!r}; it says of each class which intents are yielded: {{Pod: ["apply"]}}')
    return tuple(_write(what, cls, verbs) for cls, verbs in given.items())


def writes_of(writes: Sequence[WrittenClass], resource: GroupResource) -> list[WrittenClass]:
    """What is declared of one resource."""
    return [each for each in writes if each.resource.group_resource == resource]


def _write(what: str, cls: Any, verbs: Any) -> WrittenClass:
    require_resource(f"{what} names ", cls)
    refuse_external(f"{what}: ", cls)
    if isinstance(verbs, str) or not isinstance(verbs, Collection) or not verbs:
        raise OperatorError(f'{what} gives {cls.__name__} {verbs!r}, which is not a list of verbs: ["apply", "delete"]')
    for verb in verbs:
        if verb not in (*VERBS, _ANYWHERE):
            raise OperatorError(f"{what} gives {cls.__name__} the verb {verb!r}; there are: {', '.join(VERBS)}")
    named = tuple(sorted({verb for verb in verbs if verb != _ANYWHERE}))
    if not named:
        raise OperatorError(f'{what} says of {cls.__name__} where, and not what: add a verb to "{_ANYWHERE}"')
    return WrittenClass(cls, named, is_anywhere=_ANYWHERE in verbs)


def _verbs(writes: Iterable[WrittenClass]) -> list[str]:
    return [verb for write in writes for verb in write.verbs]


def _listed(verbs: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{verb}"' for verb in sorted(set(verbs))) + "]"
