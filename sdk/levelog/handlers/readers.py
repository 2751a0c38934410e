"""Decodes objects for handlers: filtered, as the annotated class or as plain JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec.inspect import (
    BoolType,
    DataclassType,
    DictType,
    FloatType,
    IntType,
    ListType,
    StrType,
    StructType,
    Type,
    VarTupleType,
    type_info,
)
from msgspec.structs import replace

from levelog.calls.fieldreads import ALWAYS, decode, digest_of
from levelog.handlers.fingerprints import class_fingerprint, value_fingerprint
from levelog.handlers.injection import shown
from levelog.handlers.signatures import FOR_OTHERS
from levelog.resources import External, ResourceBase, ResourceType, Struct
from levelog.selectors import Selector
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import canonical, canonical_json, digest
from levelog_base.wire.records import refuse_left_out

F = TypeVar("F", bound=Callable[..., Any])

SUMMED_UP: Final = frozenset({"Ready", "Reconciling", "Stalled"})
"""Types of the conditions that sum up the levels of an object."""
_OF_OTHERS: Final = frozenset(
    {"annotations", "body", "event", "labels", "meta", "name", "namespace", "patch", "spec", "status", "uid"}
)
"""What handlers of other frameworks take by name, and those of levelog do not."""
_OF_WRITES: Final = frozenset({"resourceVersion", "managedFields"})


class _Peek(msgspec.Struct):
    """The part of an object that filters look at."""

    class Metadata(msgspec.Struct):
        labels: dict[str, str] | None = None
        annotations: dict[str, str] | None = None

    metadata: Metadata


_peek = msgspec.json.Decoder(_Peek)


class ObjectReader:
    """Decodes objects of one resource to the fields that a handler names, or to plain dicts and lists."""

    def __init__(self, cls: type[ResourceBase], selector: Selector, *, is_plain: bool = False) -> None:
        self.cls = cls
        self.resource: ResourceType = cls.resource_type
        self.selector = selector
        self.is_plain = is_plain
        """The handler takes a mapping, so that what it reads is known only when it is called."""
        try:
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, Any] if is_plain else cls)
        except (TypeError, NameError) as error:
            raise OperatorError(f"class {cls.__name__}: {error}") from error
        if not is_plain and not issubclass(cls, External):
            _refuse_own_names(cls)
        self.hides_conditions = False
        """Conditions that sum up the object's levels are left out: they would wake what they tell of."""
        self._known_inputs = lru_cache(maxsize=16)(self._inputs)  # the fold and the decision of a pass ask for the same
        decoded = canonical(cls.resource_type) if is_plain else class_fingerprint(cls)
        self.fingerprint = digest(decoded, value_fingerprint(selector))

    def take(self, body: bytes) -> Any:
        """Decode an object; None if the handler's filters leave it out.

        Raises msgspec.ValidationError as `read` does, and whatever a filter raises.
        """
        if self.selector.looks_at_metadata:
            metadata = _peek.decode(body).metadata
            if not self.selector.matches(metadata.labels or {}, metadata.annotations or {}):
                return None
        found = self.read(body)
        return found if self.selector.when is None or self.selector.when(found) else None

    def read(self, body: bytes) -> Any:
        """Decode an object, whatever the filters say.

        Raises msgspec.ValidationError, naming the path, if a field has another type than the handler's struct says;
        ObjectTooLarge if only its metadata are recorded.
        """
        refuse_left_out(body)
        found = self._decoder.decode(body)
        return _without_conditions(found) if self.hides_conditions else found

    def inputs(self, body: bytes, fields_read: bytes | None) -> str | None:
        """Identity of what a handler sees of an object, equal where nothing that it reads differs; None if left out.

        `fields_read` are the reads of the last call, of a handler that takes a plain mapping. Raises as `take`.
        """
        return self._inputs(body, fields_read) if self.selector.has_functions else self._known_inputs(body, fields_read)

    def _inputs(self, body: bytes, fields_read: bytes | None) -> str | None:
        found = self.take(body)
        if found is None:
            return None
        if self.is_plain:
            return digest_of(found, ALWAYS if fields_read is None else decode(fields_read))
        return digest(canonical_json(found))


def _without_conditions(found: Any) -> Any:
    """The object without the conditions that sum up its levels, and without what tells of each write."""
    if isinstance(found, Mapping):
        about = {name: value for name, value in found["metadata"].items() if name not in _OF_WRITES}
        found = {**found, "metadata": about}
    status = _part(found, "status")
    conditions: Sequence[Any] = _part(status, "conditions") or ()
    others = [each for each in conditions if _part(each, "type") not in SUMMED_UP]
    if len(others) == len(conditions):
        return found
    if others or not isinstance(found, Mapping):
        return _changed(found, status=_changed(status, conditions=others))
    rest = {name: value for name, value in status.items() if name != "conditions"}
    return {name: value for name, value in found.items() if name != "status"} | ({"status": rest} if rest else {})


def _part(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _changed(of: Any, **parts: Any) -> Any:
    return {**of, **parts} if isinstance(of, Mapping) else replace(of, **parts)


def object_reader(
    kind: str,
    function: Callable[..., Any],
    parameter: str,
    hint: Any,
    selector: Selector,
    *,
    of: type[ResourceBase] | None = None,
) -> ObjectReader:
    """Reader for the first parameter of a function: a Resource class, or Mapping[str, Any] where `of` says which.

    Raises OperatorError naming the function and the parameter.
    """
    where = f"{kind} {function.__name__}"
    if of is not None:
        require_resource(f"{where}: of=", of)
        if is_mapping(hint) or hint is of:
            return ObjectReader(of, selector, is_plain=hint is not of)
        raise OperatorError(
            f"{where}: parameter {parameter!r} is {shown(hint)}, and its decorator names {of.__name__}: make it "
            f"{of.__name__}, or Mapping[str, Any] for the plain object"
        )
    if is_mapping(hint):
        raise OperatorError(
            f"{where}: parameter {parameter!r} is {shown(hint)}, which does not say which objects are meant: "
            "name their class with of="
        )
    if isinstance(hint, type) and issubclass(hint, ResourceBase):
        require_resource(f"{where}: ", hint)
        return ObjectReader(hint, selector)
    raise OperatorError(
        f"{where}: parameter {parameter!r} is {shown(hint)}; it has to be a class derived from Resource"
        + (FOR_OTHERS if hint is None and parameter in _OF_OTHERS else "")
    )


def require_field(where: str, reader: ObjectReader, keys: Sequence[str]) -> None:
    """Refuse a field that the objects of a reader never have, or that is compared by nobody. Raises OperatorError."""
    name = ".".join(keys)
    if keys[0] == "metadata" and len(keys) > 1 and keys[1] not in ("labels", "annotations"):
        raise OperatorError(f"{where}: {name} is not compared: of the metadata, labels and annotations are")
    if reader.is_plain:
        if keys[0] == "status":
            raise OperatorError(f"{where}: {name} is not compared in plain objects: annotate with a class that has it")
        return
    found: Type = type_info(reader.cls)
    for key in keys:
        match found:
            case StructType():
                fields = {field.encode_name: field.type for field in found.fields}
                if key not in fields:
                    known = ", ".join(fields) or "none"
                    raise OperatorError(
                        f"{where}: {name}: {found.cls.__name__} has no field that JSON names {key!r}; it has {known}"
                    )
                found = fields[key]
            case DictType():
                found = found.value_type
            case IntType() | FloatType() | BoolType() | StrType() | ListType() | VarTupleType():
                raise OperatorError(f"{where}: {name}: what is before {key!r} has no parts that are compared")
            case _:
                return


def function_or_class(
    where: str, of: F | type[ResourceBase] | None, options: Mapping[str, Any]
) -> tuple[F | None, Mapping[str, Any]]:
    """Function and options of a decorator that is used with or without options, of which the class is the first.

    Raises OperatorError for what is neither.
    """
    if of is None:
        return None, options
    if isinstance(of, type):
        require_resource(f"{where}: ", of)
        return None, {**options, "of": of}
    if not callable(of):
        raise OperatorError(f"{where}: takes a function or a class derived from Resource, not {of!r}")
    return of, options


def each_of(given: Any) -> list[Any]:
    """What an option takes several of, where one may also stand alone."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def require_resource(where: str, cls: object) -> None:
    """Raises OperatorError for what is no Resource class with a plural."""
    if isinstance(cls, type) and issubclass(cls, ResourceBase):
        if hasattr(cls, "resource_type"):
            return
        raise OperatorError(
            f"{where}{cls.__name__} does not say which resource it is: "
            f'class {cls.__name__}(Resource, group="…", version="…", plural="…")'
        )
    raise OperatorError(f"{where}{shown(cls)}, which is not a class derived from Resource")


@cache
def _refuse_own_names(cls: type[ResourceBase]) -> None:
    """Raises OperatorError for a dataclass in a class of objects: a field_name of it stands for no fieldName."""
    waiting: list[Any] = [type_info(cls)]
    seen: set[type] = set()
    while waiting:
        match waiting.pop():
            case StructType() | DataclassType() as found:
                if found.cls in seen:
                    continue
                seen.add(found.cls)
                own = [field.name for field in found.fields if "_" in field.encode_name.strip("_")]
                if own and not issubclass(found.cls, Struct):
                    raise OperatorError(
                        f"class {cls.__name__}: {found.cls.__name__} looks for {own[0]} under that very name, not in "
                        f"camelCase: class {found.cls.__name__}(levelog.Struct)"
                    )
                waiting += [field.type for field in found.fields]
            case found:
                for name in found.__struct_fields__:
                    held = getattr(found, name)
                    waiting += [
                        each for each in (held if isinstance(held, tuple) else (held,)) if isinstance(each, Type)
                    ]


def is_mapping(hint: Any) -> bool:
    """Tell whether an annotation asks for the plain object: Mapping[str, Any]."""
    return (get_origin(hint) or hint) is Mapping and get_args(hint) in ((), (str, Any), (str, object))
