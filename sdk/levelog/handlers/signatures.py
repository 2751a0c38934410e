"""Signatures of registered functions: parameters and types, checked when the file is loaded."""

import collections.abc
import inspect
import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NewType,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from levelog.intents import Intent
from levelog.levels import Level
from levelog.resources import Manifest
from levelog_base.errors import OperatorError

_MANY: Final = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Collection,
    collections.abc.Sequence,
    collections.abc.Set,
    list,
    tuple,
    set,
    frozenset,
)


P = ParamSpec("P")
T = TypeVar("T")

FOR_OTHERS: Final = "; for files of other frameworks, see `levelog.compat`"
"""Ends a message about what functions of such a file have, and those of levelog have not."""

MOST_TIME: Final = timedelta(days=36_500)
"""Added to a moment, a longer one may lead beyond the last year that Python counts."""

_MODULES: Final = re.compile(r"(?:\w+\.)+(?:<locals>\.)?")
"""Before a name in the text of a generic type."""


def parameters(function: Callable[..., Any], kind: str, first: str = "") -> list[str]:
    """Names of a function's parameters.

    Raises OperatorError for one that cannot be given by name, and for none where `first` says what the first one is.
    """
    found = inspect.signature(function).parameters.values()
    for parameter in found:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            named = (
                f": name each, its {first} first, as in def {function.__name__}(web: Web){FOR_OTHERS}" if first else ""
            )
            raise OperatorError(
                f"{kind} {function.__name__}: parameter {str(parameter)!r} cannot be given by name and type{named}"
            )
    if first and not found:
        raise OperatorError(f"{kind} {function.__name__}: takes no parameter; the first one is its {first}")
    return [parameter.name for parameter in found]


def require_function(function: object, kind: str) -> None:
    """Refuse a callable without a name or annotations. Raises OperatorError."""
    if isinstance(function, type):
        raise OperatorError(
            f"{kind}: takes a function, not the class {function.__name__}: if it is for objects, the annotation of its "
            "first parameter says for which, or of= does"
        )
    if not inspect.isroutine(function) or function.__name__ == "<lambda>":
        raise OperatorError(f"{kind}: takes a function with a name, not {function!r}: write one with def")


def needs(where: str, option: str, example: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a method that makes decorators refuse, by OperatorError, to be called without an option.

    `example` is a value of the option, as it is written. What may be given by place is a class alone.
    """

    def check(given: Sequence[Any], options: Mapping[str, Any]) -> None:
        if given and not (isinstance(given[0], type) and len(given) == 1):
            raise OperatorError(f"{where}: takes options by name, not {_named(given)}: {where}({option}={example})")
        if options.get(option) is None:
            raise OperatorError(f"{where}: needs {option}=: {where}({option}={example})")

    return _checked(check)


def one_place(where: str, example: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a method that makes decorators refuse, by OperatorError, more than one argument by place.

    `example` is how the decorator is written.
    """

    def check(given: Sequence[Any], options: Mapping[str, Any]) -> None:
        if len(given) > 1 or (given and "field" in options):
            raise OperatorError(
                f"{where}: takes no {_named(given)}: write {example}, and a class for the resource, "
                f'class Web(Resource, group="example.com", version="v1", plural="webs"){FOR_OTHERS}'
            )

    return _checked(check)


def _checked(
    check: Callable[[Sequence[Any], Mapping[str, Any]], None],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a method check what it is given by place and by name, before it is called."""

    def wrap(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            check(arguments[1:], options)  # without the object that has the method
            return method(*arguments, **options)

        return call

    return wrap


def _named(given: Sequence[Any]) -> str:
    return ", ".join(getattr(each, "__name__", repr(each)) for each in given)


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of a function, resolved.

    Raises OperatorError for one that cannot be.
    """
    try:
        return get_type_hints(function)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise OperatorError(f"{function.__name__}: an annotation cannot be read: {error}") from error


def declared(function: Callable[..., Any], name: str, annotations: dict[str, Any], returns: Any) -> Callable[..., Any]:
    """A function that takes its parameters by name, with a signature to be inspected."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found: Any = function
    found.__name__ = name
    found.__annotations__ = {**annotations, "return": returns}
    found.__signature__ = inspect.Signature([inspect.Parameter(each, kind) for each in annotations])
    return function


def yields(function: Callable[..., Any]) -> bool:
    """Tell whether a function is a generator, of either kind."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def holds_intents(hint: Any) -> bool:
    """Tell whether an annotation is of intents, alone or in a collection."""
    return any(each is Intent or any(map(holds_intents, get_args(each))) for each in _members(hint))


def require_time(what: str, option: str, given: object, least: timedelta = timedelta.resolution) -> None:
    """Refuse what is no time, or too short or too long a one. Raises OperatorError; `what` has the option."""
    if not isinstance(given, timedelta) or not least <= given <= MOST_TIME:
        shown = "above 0" if least == timedelta.resolution else f"of at least {least}"
        raise OperatorError(
            f"{what}: {option}={given!r} is not a time {shown} and up to 100 years: timedelta(seconds=30)"
        )


def require_flag(what: str, option: str, given: object) -> None:
    """Refuse what is neither True nor False. Raises OperatorError; `what` has the option."""
    if not isinstance(given, bool):
        raise OperatorError(f"{what}: {option}={given!r} is neither True nor False")


def refuse_circle(function: Callable[..., Any], kind: str, hints: Mapping[str, Any], later: tuple[type, ...]) -> None:
    """Refuse to read what is computed later: indices come from objects, levels from both, intents from levels."""
    for name, hint in hints.items():
        if name != "return" and (get_origin(hint) or hint) in later:
            sources = "one object alone" if kind == "index" else "its parent, indices and objects"
            raise OperatorError(
                f"{kind} {function.__name__}: parameter {name!r} is {shown(hint)}; {kind} functions compute from "
                f"{sources}, so that reads never go in a circle"
            )


def refuse_coroutine(function: Callable[..., Any], kind: str) -> None:
    """Raises OperatorError for an async function, which could wait."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise OperatorError(
            f"{kind} {function.__name__}: is async; it computes from what it is given and waits for nothing"
        )


def pair_types(function: str, returned: Any) -> tuple[Any, Any]:
    """Types of key and value of an index function, from its return annotation (None: it has none); Any where open.

    Raises OperatorError if it neither yields pairs nor returns a mapping.
    """
    if returned is None:
        return Any, Any
    parts = [part for part in _members(returned) if part is not NoneType]
    if len(parts) > 1:
        return Any, Any
    returned = _bare(parts[0]) if parts else NoneType
    origin = get_origin(returned) or returned
    arguments = get_args(returned)
    if returned is Any or isinstance(returned, TypeVar):
        return Any, Any
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return (arguments[0], arguments[1]) if len(arguments) == 2 else (Any, Any)
    if origin in _MANY:
        pair = _bare(arguments[0]) if arguments else Any
        given = get_args(pair)
        if pair in (Any, tuple) or (get_origin(pair) is tuple and given[-1:] == (Ellipsis,)):
            return Any, Any
        if get_origin(pair) is tuple and len(given) == 2:
            return given[0], given[1]
    raise OperatorError(
        f"index {function}: is annotated to return {shown(returned)}; it has to yield pairs, Iterator[tuple[K, V]], or "
        "to return a Mapping[K, V]"
    )


def require_index(view: str, parameter: str, hint: Any, types: tuple[Any, Any]) -> tuple[Any, Any]:
    """Types of key and value that a parameter `Index[K, V]` asks for; `types` are those that the index function yields.

    What either side leaves open (no annotation, Any) fits anything, as for a type checker; the values are still decoded
    as V when they are read. Raises OperatorError, naming view, parameter and both types, where they do not fit.
    """
    wanted = get_args(hint) or (Any, Any)
    if not all(map(is_accepted, types, wanted)):
        raise OperatorError(
            f"view {view}: parameter {parameter!r} is {shown(hint)}, but the index {parameter} has keys of type "
            f"{shown(types[0])} and values of type {shown(types[1])}: Index[{shown(types[0])}, {shown(types[1])}]"
        )
    return wanted[0], wanted[1]


def require_level(function: str, parameter: str, hint: Any, view: str, returned: Any) -> None:
    """Raises OperatorError, naming function, parameter and both types, if a view's level is no `Level[T]` as asked for.

    What either side leaves open (plain Level, Level[Any]) fits anything.
    """
    given, wanted = get_args(returned) or (Any,), get_args(hint) or (Any,)
    if not is_accepted(given[0], wanted[0]):
        raise OperatorError(
            f"reconcile function {function}: parameter {parameter!r} is {shown(hint)}, but the view {view} returns "
            f"{shown(returned)}"
        )


def is_accepted(given: Any, wanted: Any) -> bool:
    """Tell whether a value of type `given` may go where `wanted` is declared, as a type checker would.

    Any fits on either side. Numbers are told apart as in JSON: an int is a float, a bool is no int.
    """
    given, wanted = _bare(given), _bare(wanted)
    if Any in (given, wanted) or given == wanted or wanted is object:
        return True
    if isinstance(given, TypeVar) or isinstance(wanted, TypeVar):
        return True
    members = _members(given)
    if len(members) > 1:
        return all(is_accepted(member, wanted) for member in members)
    if len(_members(wanted)) > 1:
        return any(is_accepted(given, member) for member in _members(wanted))
    given_origin, wanted_origin = get_origin(given) or given, get_origin(wanted) or wanted
    if not isinstance(given_origin, type) or not isinstance(wanted_origin, type):
        return False
    if given_origin is bool or wanted_origin is bool:
        return given_origin is wanted_origin
    if (given_origin, wanted_origin) == (int, float):
        return True
    return is_subclass(given_origin, wanted_origin) and _arguments_fit(get_args(given), get_args(wanted))


def is_subclass(cls: type, other: type) -> bool:
    """Tell whether a class is another or derives from it; False for a Protocol and a TypedDict, which cannot tell."""
    try:
        return issubclass(cls, other)
    except TypeError:
        return False


def _arguments_fit(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    if not given or not wanted:
        return True
    if wanted[-1] is Ellipsis:  # tuple[T, ...] takes tuples of any length
        return all(is_accepted(part, wanted[0]) for part in given if part is not Ellipsis)
    return len(given) == len(wanted) and Ellipsis not in given and all(map(is_accepted, given, wanted))


def shown(hint: object) -> str:
    """A type as a person writes it; the modules of classes are left out."""
    if hint is None or hint is NoneType:
        return "None"
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    if isinstance(hint, NewType):
        return str(hint.__name__)
    return _MODULES.sub("", str(hint))


def _bare(hint: Any) -> Any:
    """A type without what says nothing of its values: Annotated, NewType."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return NoneType if hint is None else hint


def _members(hint: Any) -> tuple[Any, ...]:
    hint = _bare(hint)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


Entries: TypeAlias = Iterable[tuple[Any, Any]] | Mapping[Any, Any] | None
Intents: TypeAlias = Iterable[Intent] | Intent | None
Children: TypeAlias = Manifest | Iterable[Manifest] | None

IndexF = TypeVar("IndexF", bound=Callable[..., Entries])
ViewF = TypeVar("ViewF", bound=Callable[..., Level[Any]])
EffectF = TypeVar("EffectF", bound=Callable[..., Any])
ReconcileF = TypeVar("ReconcileF", bound=Callable[..., Intents | AsyncIterable[Intent] | Awaitable[Intents]])
ChildrenF = TypeVar("ChildrenF", bound=Callable[..., Children])
