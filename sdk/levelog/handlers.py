"""Registered functions, inspected when the file is loaded, so that a wrong one is refused before anything runs."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args, get_origin

from msgspec import Struct

from levelog.annotations import pair_types, require_index, require_level, shown
from levelog.canonical import canonical, digest
from levelog.errors import OperatorError
from levelog.external import refuse_external
from levelog.fingerprints import fingerprint, type_fingerprint
from levelog.indices import Index
from levelog.injection import NOTHING, Given, Injections, Lender, injections, parameters, type_hints
from levelog.intents import Intent
from levelog.levels import Level
from levelog.lookups import Objects
from levelog.objectreaders import ObjectReader, is_mapping, object_reader
from levelog.resources import ResourceBase, ResourceType
from levelog.selectors import Selector
from levelog.writes import Write, Writes, inspect_writes, refuse_undeclared

OnError: TypeAlias = Literal["block", "ignore"]
"""What becomes of the views that read an index while it leaves out an object because its function raised."""

RECONCILE_TIME: Final = timedelta(seconds=30)
"""Default time limit of a reconcile function."""

VIEW_TIME: Final = timedelta(seconds=10)
"""Default time limit of a view, and the one of index functions."""

OF_INDICES: Final = (Given.LOGGER, Given.SETTINGS)
"""What an index function may take besides its object."""
OF_VIEWS: Final = (Given.INDEX, Given.OBJECTS, Given.NOW, Given.LOGGER, Given.SETTINGS)
OF_RECONCILERS: Final = (Given.LEVEL, Given.NOW, Given.LOGGER, Given.SETTINGS)


class IndexHandler:
    """An index function: which objects it takes and what its entries look like."""

    has_objects: ClassVar[bool] = True
    """Whether objects fill it; else receipts do, and nothing has to be watched for it."""

    def __init__(
        self,
        function: Callable[..., Any],
        reader: ObjectReader,
        returns: Any,
        *,
        given: Injections = NOTHING,
        name: str = "",
        code: str = "",
        errors: OnError = "block",
        expires: timedelta | None = None,
    ) -> None:
        self.name = name or function.__name__
        self.function = function
        self.reader = reader
        self.resource = reader.resource
        self.given = given
        self.returns = returns
        """The return annotation."""
        self.errors: OnError = errors
        self.expires = expires
        """How long entries stay after the last change of their object; None: as long as that."""
        self.types: tuple[Any, Any] = pair_types(self.name, returns)
        """Types of key and value; Any where the annotation leaves them open."""
        self.fingerprint = digest(
            code or fingerprint(function), reader.fingerprint, given.fingerprint, f"{errors} {expires}"
        )

    @property
    def is_implicit(self) -> bool:
        """Whether levelog keeps the index by itself: its name begins with `@`, and it has no SQL view."""
        return self.name.startswith("@")

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        selector: Selector,
        lender: Lender,
        *,
        errors: OnError = "block",
        expires: timedelta | None = None,
        of: type[ResourceBase] | None = None,
    ) -> "IndexHandler":
        """Check the signature and the options of an index function; with `of`, it takes plain objects.

        Raises OperatorError naming the function and the parameter.
        """
        if errors not in get_args(OnError):
            raise OperatorError(f'index {function.__name__}: errors={errors!r} is neither "block" nor "ignore"')
        if expires is not None and (not isinstance(expires, timedelta) or expires <= timedelta(0)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError(f"index {function.__name__}: expires={expires!r} is not a timedelta above zero")
        _refuse_coroutine(function, "index")
        hints = type_hints(function)
        first, *rest = _parameters(function, "index", "object")
        reader = object_reader("index", function, first, hints.get(first), selector, of=of)
        _refuse_circle(function, "index", hints, (Index, Objects, Level))
        given = injections(function, "index", rest, OF_INDICES, lender)
        return cls(function, reader, hints.get("return"), given=given, errors=errors, expires=expires)

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """Keys and values that the function gives for an object; none if the filters leave it out.

        Raises whatever the function raises, and TypeError for a result that is not pairs.
        """
        found = self.reader.take(body)
        if found is None:
            return []
        result = self.function(found, **self.given.arguments({}))
        if result is None:
            return []
        pairs: Iterable[Any] = result.items() if isinstance(result, Mapping) else result
        entries: list[tuple[Any, Any]] = []
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"index {self.name} gave {pair!r}, which is not a pair of key and value")
            entries.append(pair)
        return entries


class IndexParameter(Struct, frozen=True):
    """A parameter through which a view reads an index."""

    name: str
    index: IndexHandler
    key_type: Any
    value_type: Any


class ViewHandler:
    """A view function: its parent, the indices and objects that it reads, and what else it is given."""

    def __init__(
        self,
        function: Callable[..., Any],
        reader: ObjectReader,
        parent_parameter: str,
        indices: tuple[IndexParameter, ...],
        given: Injections,
        returns: Any,
        *,
        deleting: bool,
        objects: Mapping[type[ResourceBase], IndexHandler],
        timeout: timedelta = VIEW_TIME,
    ) -> None:
        self.name = function.__name__
        self.function = function
        self.reader = reader
        self.resource = reader.resource
        self.parent_parameter = parent_parameter
        self.indices = indices
        self.given = given
        self.returns = returns
        """The return annotation, `Level[T]`."""
        self.deleting = deleting
        self.timeout = timeout
        self.objects = dict(objects)
        """The implicit index of each class in `reads=`."""
        self.fingerprint = digest(
            fingerprint(function),
            reader.fingerprint,
            given.fingerprint,
            str(deleting),
            *(index.fingerprint for index in self.sources),
            *(type_fingerprint(parameter.value_type) for parameter in indices),
        )

    @property
    def sources(self) -> tuple[IndexHandler, ...]:
        """Every index that the view may read: by parameters, then those of `reads=`."""
        return (*(parameter.index for parameter in self.indices), *self.objects.values())

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        known: Mapping[str, IndexHandler],
        selector: Selector,
        lender: Lender,
        *,
        deleting: bool,
        objects: Mapping[type[ResourceBase], IndexHandler],
        of: type[ResourceBase] | None = None,
        timeout: timedelta = VIEW_TIME,
    ) -> Self:
        """Check the signature of a view function; `objects` are the indices of the classes in its `reads=`.

        Raises OperatorError naming the function and the parameter.
        """
        _refuse_coroutine(function, "view")
        require_time(function, "view", timeout)
        hints = type_hints(function)
        first, *rest = _parameters(function, "view", "parent")
        reader = object_reader("view", function, first, hints.get(first), selector, of=of)
        refuse_external(f"view {function.__name__}: its parent {first!r}: ", reader.cls)
        _refuse_circle(function, "view", hints, (Level,))
        given = injections(function, "view", rest, OF_VIEWS, lender)
        indices: list[IndexParameter] = []
        for name, hint in given.indices.items():
            if name not in known:
                raise OperatorError(
                    f"view {function.__name__}: parameter {name!r} asks for an index that is not defined above it; "
                    f"known are: {', '.join(sorted(n for n in known if n.isidentifier())) or 'none'}"
                )
            key_type, value_type = require_index(function.__name__, name, hint, known[name].types)
            indices.append(IndexParameter(name, known[name], key_type, value_type))
        _require_both(function, given.given, objects)
        returned = hints.get("return")
        if (get_origin(returned) or returned) is not Level:
            said = "is not annotated with what it returns" if returned is None else f"returns {shown(returned)}"
            raise OperatorError(f"view {function.__name__}: {said}; it has to be Level[T]")
        return cls(
            function,
            reader,
            first,
            tuple(indices),
            given,
            returned,
            deleting=deleting,
            objects=objects,
            timeout=timeout,
        )


class ReconcileHandler:
    """A reconcile function of one view."""

    def __init__(
        self,
        function: Callable[..., Any],
        view: ViewHandler,
        reader: ObjectReader,
        given: Injections,
        writes: tuple[Write, ...] | None,
        timeout: timedelta = RECONCILE_TIME,
    ) -> None:
        self.name = function.__name__
        self.function = function
        self.view = view
        self.reader = reader
        self.parent_parameter = next(iter(inspect.signature(function).parameters))
        self.given = given
        self.writes = writes
        """What it may yield intents for; None: it does not say."""
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        """Whether it runs in the event loop; else it runs in a thread."""
        declared = canonical([[write.resource, write.verbs] for write in writes or ()])
        self.fingerprint = digest(fingerprint(function), reader.fingerprint, given.fingerprint, declared)

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        view: ViewHandler,
        writes: Writes | None,
        lender: Lender,
        *,
        timeout: timedelta = RECONCILE_TIME,
    ) -> "ReconcileHandler":
        """Check the signature of a reconcile function.

        Raises OperatorError naming the function and the parameter.
        """
        require_time(function, "reconcile function", timeout)
        hints = type_hints(function)
        first, *rest = _parameters(function, "reconcile function", "parent")
        reader = _reconciled(function, view, first, hints.get(first))
        given = injections(function, "reconcile function", rest, OF_RECONCILERS, lender)
        for name, kind in given.given.items():
            if kind is Given.LEVEL:
                require_level(function.__name__, name, hints[name], view.name, view.returns)
        declared = None if writes is None else inspect_writes(function.__name__, writes)
        return cls(function, view, reader, given, declared, timeout)

    def refuse_undeclared(self, intent: Intent, resource: ResourceType) -> None:
        """Raises OperatorError for an intent that is not among those which the function says it yields."""
        if self.writes is not None:
            refuse_undeclared(self.name, self.view.name, self.writes, intent.verb, resource, intent.name)


def require_time(function: Callable[..., Any], kind: str, timeout: object) -> None:
    """Refuse a time limit that is no time."""
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        raise OperatorError(
            f"{kind} {function.__name__}: timeout={timeout!r} is not a time above 0: timedelta(seconds=30)"
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


def _parameters(function: Callable[..., Any], kind: str, first: str) -> list[str]:
    names = parameters(function, kind)
    if not names:
        raise OperatorError(f"{kind} {function.__name__}: takes no parameter; the first one is its {first}")
    return names


def _require_both(
    function: Callable[..., Any], given: Mapping[str, Given], objects: Mapping[type[ResourceBase], IndexHandler]
) -> None:
    """Refuse `reads=` that nothing can use, and objects of which none are declared."""
    taken = [name for name, kind in given.items() if kind is Given.OBJECTS]
    if objects and not taken:
        classes = ", ".join(cls.__name__ for cls in objects)
        raise OperatorError(
            f"view {function.__name__}: reads=[{classes}], but no parameter takes them: add objects: Objects"
        )
    if taken and not objects:
        raise OperatorError(
            f"view {function.__name__}: parameter {taken[0]!r} is Objects, but the view does not say which: "
            "name their classes, @op.view(reads=[…])"
        )


def _refuse_circle(function: Callable[..., Any], kind: str, hints: Mapping[str, Any], later: tuple[type, ...]) -> None:
    """Refuse to read what is computed later: indices come from objects, levels from both, intents from levels."""
    for name, hint in hints.items():
        if name != "return" and (get_origin(hint) or hint) in later:
            sources = "one object alone" if kind == "index" else "its parent, indices and objects"
            raise OperatorError(
                f"{kind} {function.__name__}: parameter {name!r} is {shown(hint)}; {kind} functions compute from "
                f"{sources}, so that reads never go in a circle"
            )


def _refuse_coroutine(function: Callable[..., Any], kind: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise OperatorError(
            f"{kind} {function.__name__}: is async; it computes from what it is given and waits for nothing"
        )
