"""Index functions, and the indices that levelog maintains by itself, whose names begin with `@`."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from levelog.handlers.fingerprints import class_fingerprint, fingerprint
from levelog.handlers.injection import NOTHING, Injections, Lender, injections
from levelog.handlers.readers import ObjectReader, each_of, object_reader, require_resource
from levelog.handlers.signatures import (
    pair_types,
    parameters,
    refuse_circle,
    refuse_coroutine,
    require_time,
    type_hints,
)
from levelog.indices import Index, Objects
from levelog.levels import Level
from levelog.resources import ResourceBase
from levelog.selectors import Selector
from levelog_base.errors import ObjectTooLarge, OperatorError, TooManyEntries
from levelog_base.wire.canonical import canonical, digest

APPLIED: Final = "applied/"
"""Begins the name of an index that receipts fill, before that of its view."""

MARK: Final = "@"
"""Begins the name of every implicit index; no function's name does."""


OnError: TypeAlias = Literal["hold", "block", "ignore"]
"""What becomes of the views that read an index while it leaves out an object because its function raised."""

MAX_ENTRIES: Final = 10_000
"""Entries of one object in an index that does not say how many it may have."""

MOST_ENTRIES: Final = 32_767
"""What an index may allow at the most: the column that numbers an object's entries under one key holds no more."""


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
        errors: OnError = "hold",
        expires: timedelta | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self.name = name or function.__name__
        self.function = function
        self._parameter = next(iter(inspect.signature(function).parameters))
        self.reader = reader
        self.resource = reader.resource
        self.given = given
        self.returns = returns
        """The return annotation."""
        self.errors: OnError = errors
        self.expires = expires
        """How long entries stay after the last change of their object; None: as long as that."""
        self.max_entries = max_entries
        """Most entries of one object."""
        self.types: tuple[Any, Any] = pair_types(self.name, returns)
        """Types of key and value; Any where the annotation leaves them open."""
        self.fingerprint = digest(
            code or fingerprint(function), reader.fingerprint, given.fingerprint, f"{errors} {expires} {max_entries}"
        )

    @property
    def is_implicit(self) -> bool:
        """Whether levelog keeps the index by itself: its name begins with `@`, and it has no SQL view."""
        return self.name.startswith(MARK)

    @classmethod
    def inspect(
        cls,
        function: Callable[..., Any],
        selector: Selector,
        lender: Lender,
        *,
        errors: OnError = "hold",
        expires: timedelta | None = None,
        max_entries: int = MAX_ENTRIES,
        of: type[ResourceBase] | None = None,
    ) -> "IndexHandler":
        """Check the signature and the options of an index function; with `of`, it takes plain objects.

        Raises OperatorError naming the function and the parameter.
        """
        if errors not in get_args(OnError):
            raise OperatorError(f'index {function.__name__}: errors={errors!r} is none of "hold", "block" and "ignore"')
        if expires is not None:
            require_time(f"index {function.__name__}", "expires", expires)
        if type(max_entries) is not int or not 0 < max_entries <= MOST_ENTRIES:
            raise OperatorError(
                f"index {function.__name__}: max_entries={max_entries!r} is not a number from 1 to {MOST_ENTRIES:,}"
            )
        refuse_coroutine(function, "index")
        hints = type_hints(function)
        first, *rest = parameters(function, "index", "object")
        reader = object_reader("index", function, first, hints.get(first), selector, of=of)
        refuse_circle(function, "index", hints, (Index, Objects, Level))
        given = injections(function, "index", rest, lender)
        returns = hints.get("return")
        return cls(function, reader, returns, given=given, errors=errors, expires=expires, max_entries=max_entries)

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """Keys and values that the function gives for an object; none if the filters leave it out.

        Raises whatever the function raises, TypeError for a result that is not pairs, and TooManyEntries.
        """
        found = self.reader.take(body)
        if found is None:
            return []
        result = self.function(**{self._parameter: found}, **self.given.arguments({}))
        if result is None:
            return []
        pairs: Iterator[Any] = iter(result.items() if isinstance(result, Mapping) else result)
        entries: list[tuple[Any, Any]] = []
        for pair in islice(pairs, self.max_entries):
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"index {self.name} gave {pair!r}, which is not a pair of key and value")
            entries.append(pair)
        if more := sum(1 for _ in pairs):
            raise TooManyEntries(
                f"{len(entries) + more:,} entries of one object, where max_entries={self.max_entries} of index "
                f"{self.name} allows no more"
            )
        return entries


class ImplicitIndex(IndexHandler):
    """An index of one class whose entries are levelog's own choice; the fold maintains it like any other.

    It has no SQL view. `code` names what makes its entries, so that another way of making them is noticed.
    """

    def __init__(
        self,
        name: str,
        cls: type[ResourceBase],
        entries_of: Callable[[Any], Iterable[tuple[Any, Any]]],
        *,
        code: str,
    ) -> None:
        super().__init__(
            entries_of,
            ObjectReader(cls, Selector()),
            returns=None,
            name=f"{MARK}{name}",
            code=digest(code, class_fingerprint(cls)),
        )
        self.cls = cls


class ObjectIndex(ImplicitIndex):
    """Index `@ClassName`: each object, as the class decodes it, under (namespace, name).

    An object that the class cannot decode has an entry that says why, so that those who look it up see that, and nobody
    else: the index never lacks an object.
    """

    def __init__(self, cls: type[ResourceBase]) -> None:
        super().__init__(cls.__name__, cls, lambda found: [(_named(cls, found.metadata), found)], code="unreadable")
        self.errors = "ignore"

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """The one entry of an object."""
        try:
            return super().entries(body)
        except (msgspec.ValidationError, ObjectTooLarge, ValueError, TypeError) as error:
            return [(_named(self.cls, _placed.decode(body).metadata), UnreadableObject(unreadable=str(error)))]

    def read(self, value: bytes) -> ResourceBase:
        """The object of an entry.

        Raises ValueError saying why for one that the class cannot decode.
        """
        try:
            found: ResourceBase = self.reader.read(value)
        except msgspec.ValidationError:
            raise ValueError(_unreadable.decode(value).unreadable) from None
        return found


class UnreadableObject(Struct, frozen=True):
    """What stands for an object that the class of its index cannot decode; no object has such a field at its top."""

    unreadable: str


class _Placed(Struct):
    class Metadata(Struct):
        name: str
        namespace: str = ""

    metadata: Metadata


_placed = msgspec.json.Decoder(_Placed)
_unreadable = msgspec.json.Decoder(UnreadableObject)


def _named(cls: type[ResourceBase], metadata: Any) -> tuple[str, str]:
    return object_key(cls, metadata.namespace, metadata.name)


def applied_place(view: str, parent: str) -> tuple[str, str]:
    """Index and canonical key under which what was applied for a parent of a children view is remembered."""
    operator, _, function = view.partition("/")
    return f"{operator}/{MARK}{APPLIED}{function}", canonical(parent).decode()


def call_entry(parent: str, name: str) -> str:
    """What stands for an object in the entry of a call: no object's name, so that no record of one touches it."""
    return f"{MARK}{parent}/{name}/"


def called_parent(entry: str, name: str) -> str:
    """The parent in the name of an entry that `call_entry` made."""
    return entry[len(MARK) : -len(f"/{name}/")]


def object_key(cls: type[ResourceBase], namespace: str, name: str) -> tuple[str, str]:
    """Key of an object in an `ObjectIndex`."""
    key = cls.resource_type.key(namespace, name)
    return key.namespace, key.name


def require_levels(
    view: str, wanted: Iterable[type[ResourceBase] | str]
) -> tuple[tuple[type[ResourceBase], ...], tuple[str, ...]]:
    """The classes of `levels_of=`, and the names of views, each once.

    Raises OperatorError for what is neither a Resource class nor `operator/view`.
    """
    given = each_of(wanted)
    names = tuple(dict.fromkeys(each for each in given if isinstance(each, str)))
    for name in names:
        if not all(name.partition("/")):
            raise OperatorError(
                f"view {view}: levels_of= names {name!r}: write operator/view, as `levelog levels` shows it, or a class"
            )
    classes = (each for each in given if not isinstance(each, str))
    return require_resources(view, classes, option="levels_of"), names


def require_resources(
    view: str, classes: Iterable[type[ResourceBase]], *, option: str = "reads"
) -> tuple[type[ResourceBase], ...]:
    """The classes of `reads=`, or another option, each once.

    Raises OperatorError for one that is not a Resource class.
    """
    found: list[type[ResourceBase]] = []
    for cls in each_of(classes):
        require_resource(f"view {view}: {option}=", cls)
        if cls not in found:
            found.append(cls)
    return tuple(found)
