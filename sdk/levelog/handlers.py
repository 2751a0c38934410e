"""Registered functions, inspected when the file is loaded, so that a wrong one is refused before anything runs."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Struct

from levelog.canonical import canonical, digest
from levelog.errors import OperatorError
from levelog.fingerprints import fingerprint
from levelog.injection import NOTHING, Given, Injections, Lender, injections, parameters, shown, type_hints
from levelog.levels import Level
from levelog.resources import ResourceBase, ResourceType
from levelog.selectors import Selector

OnError: TypeAlias = Literal["block", "ignore"]
"""What becomes of the views that read an index while it leaves out an object because its function raised."""

RECONCILE_TIME: Final = timedelta(seconds=30)
"""Default time limit of a reconcile function."""

OF_INDICES: Final = (Given.LOGGER, Given.SETTINGS)
"""What an index function may take besides its object."""
OF_VIEWS: Final = (Given.INDEX, Given.OBJECTS, Given.NOW, Given.LOGGER, Given.SETTINGS)
OF_RECONCILERS: Final = (Given.LEVEL, Given.NOW, Given.LOGGER, Given.SETTINGS)


class _Peek(Struct):
    """The part of an object that filters look at."""

    class Metadata(Struct):
        labels: dict[str, str] | None = None
        annotations: dict[str, str] | None = None

    metadata: Metadata


_peek = msgspec.json.Decoder(_Peek)


class ObjectReader:
    """Decodes objects of one resource to the fields that a handler names."""

    def __init__(self, cls: type[ResourceBase], selector: Selector) -> None:
        self.resource: ResourceType = cls.resource_type
        self.selector = selector
        self._decoder = msgspec.json.Decoder(cls)

    def selects(self, body: bytes) -> bool:
        """Tell whether the handler's filters let the object through."""
        if not self.selector:
            return True
        metadata = _peek.decode(body).metadata
        return self.selector.matches(metadata.labels or {}, metadata.annotations or {})

    def read(self, body: bytes) -> ResourceBase:
        """Decode an object.

        Raises msgspec.ValidationError, naming the path, if a field has another type than the handler's struct says.
        """
        return self._decoder.decode(body)


def inputs_digest(parent: ResourceBase) -> str:
    """Identity of what a handler sees of an object: equal digests mean that nothing it reads has changed."""
    return digest(canonical(parent))


class IndexHandler:
    """An index function: which objects it takes and what its entries look like."""

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
    ) -> None:
        self.name = name or function.__name__
        self.function = function
        self.reader = reader
        self.resource = reader.resource
        self.given = given
        self.returns = returns
        """The return annotation."""
        self.errors: OnError = errors
        self.fingerprint = digest(code or fingerprint(function), given.fingerprint)

    @property
    def is_implicit(self) -> bool:
        """Whether levelog keeps the index by itself: its name begins with `@`, and it has no SQL view."""
        return self.name.startswith("@")

    @classmethod
    def inspect(
        cls, function: Callable[..., Any], selector: Selector, lender: Lender, *, errors: OnError = "block"
    ) -> "IndexHandler":
        """Check the signature and the options of an index function.

        Raises OperatorError naming the function and the parameter.
        """
        if errors not in get_args(OnError):
            raise OperatorError(f'index {function.__name__}: errors={errors!r} is neither "block" nor "ignore"')
        _refuse_coroutine(function, "index")
        hints = type_hints(function)
        first, *rest = _parameters(function, "index", "object")
        reader = ObjectReader(_object_type(function, "index", first, hints), selector)
        given = injections(function, "index", rest, OF_INDICES, lender)
        return cls(function, reader, hints.get("return"), given=given, errors=errors)

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """Keys and values that the function gives for an object; none if the filters leave it out.

        Raises whatever the function raises, and TypeError for a result that is not pairs.
        """
        if not self.reader.selects(body):
            return []
        result = self.function(self.reader.read(body), **self.given.arguments({}))
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
        self.objects = dict(objects)
        """The implicit index of each class in `reads=`."""
        self.fingerprint = digest(
            fingerprint(function), given.fingerprint, *(index.fingerprint for index in self.sources)
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
    ) -> "ViewHandler":
        """Check the signature of a view function; `objects` are the indices of the classes in its `reads=`.

        Raises OperatorError naming the function and the parameter.
        """
        _refuse_coroutine(function, "view")
        hints = type_hints(function)
        first, *rest = _parameters(function, "view", "parent")
        parent = _object_type(function, "view", first, hints)
        given = injections(function, "view", rest, OF_VIEWS, lender)
        indices: list[IndexParameter] = []
        for name, hint in given.indices.items():
            if name not in known:
                raise OperatorError(
                    f"view {function.__name__}: parameter {name!r} asks for an index that is not defined above it; "
                    f"known are: {', '.join(sorted(n for n in known if n.isidentifier())) or 'none'}"
                )
            key_type, value_type = get_args(hint) or (Any, Any)
            indices.append(IndexParameter(name, known[name], key_type, value_type))
        _require_both(function, given.given, objects)
        returned = hints.get("return")
        if returned is not Level and get_origin(returned) is not Level:
            raise OperatorError(
                f"view {function.__name__}: has to be annotated to return a Level, not {shown(returned)}"
            )
        return cls(
            function,
            ObjectReader(parent, selector),
            first,
            tuple(indices),
            given,
            returned,
            deleting=deleting,
            objects=objects,
        )


class ReconcileHandler:
    """A reconcile function of one view."""

    def __init__(
        self,
        function: Callable[..., Any],
        view: ViewHandler,
        reader: ObjectReader,
        given: Injections,
        writes: tuple[ResourceType, ...],
        timeout: timedelta = RECONCILE_TIME,
    ) -> None:
        self.name = function.__name__
        self.function = function
        self.view = view
        self.reader = reader
        self.parent_parameter = next(iter(inspect.signature(function).parameters))
        self.given = given
        self.writes = writes
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        """Whether it runs in the event loop; else it runs in a thread."""
        self.fingerprint = digest(fingerprint(function), given.fingerprint)

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        view: ViewHandler,
        writes: tuple[type[ResourceBase], ...],
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
        parent = _object_type(function, "reconcile function", first, hints)
        if parent.resource_type != view.resource:
            raise OperatorError(
                f"reconcile function {function.__name__}: parameter {first!r} is {parent.resource_type.plural}, "
                f"but the view {view.name!r} is of {view.resource.plural}"
            )
        given = injections(function, "reconcile function", rest, OF_RECONCILERS, lender)
        reader = ObjectReader(parent, view.reader.selector)
        return cls(function, view, reader, given, tuple(cls_.resource_type for cls_ in writes), timeout)


def require_time(function: Callable[..., Any], kind: str, timeout: object) -> None:
    """Refuse a time limit that is no time."""
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        raise OperatorError(
            f"{kind} {function.__name__}: timeout={timeout!r} is not a time above 0: timedelta(seconds=30)"
        )


def _parameters(function: Callable[..., Any], kind: str, first: str) -> list[str]:
    names = parameters(function, kind)
    if not names:
        raise OperatorError(f"{kind} {function.__name__}: takes no parameter; the first one is its {first}")
    return names


def _object_type(
    function: Callable[..., Any], kind: str, parameter: str, hints: Mapping[str, Any]
) -> type[ResourceBase]:
    hint = hints.get(parameter)
    if isinstance(hint, type) and issubclass(hint, ResourceBase):
        if not hasattr(hint, "resource_type"):
            raise OperatorError(
                f"{kind} {function.__name__}: {hint.__name__} does not say which resource it is: "
                f'class {hint.__name__}(Resource, group="…", version="…", plural="…")'
            )
        return hint
    raise OperatorError(
        f"{kind} {function.__name__}: parameter {parameter!r} is {shown(hint)}; it has to be a class "
        "derived from Resource"
    )


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


def _refuse_coroutine(function: Callable[..., Any], kind: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise OperatorError(
            f"{kind} {function.__name__}: is async; it computes from what it is given and waits for nothing"
        )
