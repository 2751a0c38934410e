"""Structural schemas of Resource classes: every type inlined, nothing left open that the class does not leave open."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import cache
from itertools import pairwise
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType
from msgspec.structs import FieldInfo

from levelog.resources import CEL, ResourceBase
from levelog_base.errors import OperatorError

Json: TypeAlias = dict[str, Any]

RULES: Final = "x-kubernetes-validations"
KEPT: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"

SERVERS: Final = ("apiVersion", "kind", "metadata")
"""Fields at the top of an object that the API server adds to every schema."""

_SCALARS: Final[dict[Any, Json]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    UUID: {"type": "string", "format": "uuid"},
}
_LISTS: Final = (list, tuple, Sequence)
_SETS: Final = (set, frozenset)
_SIZED: Final = {"string": "Length", "array": "Items", "object": "Properties"}


class _Place(msgspec.Struct, frozen=True):
    """The place of a type in a class."""

    cls: str
    path: str = ""
    within: tuple[Any, ...] = ()
    """The structs around it."""
    has_defaults: bool = True

    def field(self, name: str) -> "_Place":
        path = f"{self.path}.{name}" if self.path else name
        # a status says what was seen, and a default was not
        return _Place(self.cls, path, self.within, self.has_defaults and path != "status")

    def refused(self, why: str) -> OperatorError:
        return OperatorError(f"class {self.cls}: {self.path or 'it'} {why}")


def schema_of(cls: type[ResourceBase]) -> Json:
    """The `openAPIV3Schema` of a class; raises OperatorError, naming class and field, for what has no structural one.

    A field without a default is required, but for `status`, which a new object does not have.
    """
    made = _struct(cls, _Place(cls.__name__))
    made["properties"] = {name: each for name, each in made["properties"].items() if name not in SERVERS}
    made["required"] = [name for name in made["required"] if name not in (*SERVERS, "status")]
    return _ordered({name: each for name, each in made.items() if each} | dict(cls.definition.extra_json_schema))


def _schema(hint: Any, at: _Place) -> Json:
    notes: tuple[Any, ...] = ()
    while (is_noted := get_origin(hint) is Annotated) or hasattr(hint, "__supertype__"):
        notes = hint.__metadata__ + notes if is_noted else notes
        hint = hint.__origin__ if is_noted else hint.__supertype__
    given = _given(notes)
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)  # such may keep what it does not name
    is_given = not given.keys().isdisjoint(("type", INT_OR_STRING) if is_struct else ("type", KEPT, INT_OR_STRING))
    made = {} if is_given else _plain(hint, at)
    for note in notes:
        match note:
            case Meta():
                _bound(made, note, at)
            case CEL():
                made[RULES] = [*made.get(RULES, ()), _rule(note)]
            case _:
                pass
    return made | given


def _plain(hint: Any, at: _Place) -> Json:
    if hint in (Any, object, msgspec.Raw):
        return {KEPT: True}
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if isinstance(origin, type):
        if origin in _SCALARS:
            return dict(_SCALARS[origin])
        if issubclass(origin, msgspec.Struct):
            return _struct(hint, at)
        if issubclass(origin, Enum):
            return _choice([member.value for member in origin], at)
    if origin in (Union, UnionType):
        return _union(arguments, at)
    if origin is Literal:
        return _choice(arguments, at)
    if origin in (dict, Mapping):
        return _mapping(arguments, at)
    if origin in _LISTS or origin in _SETS:
        return _list(origin, arguments, at)
    name = getattr(hint, "__name__", hint)
    raise at.refused(
        f"is {name}, of which no schema is made: use a levelog.Struct, a scalar, a list, a dict, or "
        'Annotated[…, Meta(extra_json_schema={"type": …})]'
    )


def _union(arguments: Sequence[Any], at: _Place) -> Json:
    made = [_schema(each, at) for each in arguments if each not in (NoneType, UnsetType)]
    null = {"nullable": True} if NoneType in arguments else {}
    types = [each.get("type") for each in made]
    if len(made) == 1:
        return made[0] | null
    if made and all("enum" in each for each in made):
        return _choice([value for each in made for value in each["enum"]], at) | null
    if all(len(each) == 1 for each in made):
        if set(types) == {"integer", "number"}:
            return {"type": "number"} | null
        if set(types) == {"integer", "string"}:
            return {INT_OR_STRING: True} | null
    raise at.refused("may be of several types; a structural schema can say int | str, int | float, literals, and None")


def _choice(values: Iterable[Any], at: _Place) -> Json:
    chosen = list(dict.fromkeys(value for value in values if value is not None))
    null = {"nullable": True} if None in values else {}
    for type_, name in ((str, "string"), (int, "integer")):
        if all(isinstance(value, type_) for value in chosen):
            return {"type": name, "enum": chosen} | null
    raise at.refused("may be a string or an integer, and a structural schema has values of one type")


def _mapping(arguments: Sequence[Any], at: _Place) -> Json:
    key, value = arguments or (str, Any)
    if _schema(key, at).get("type") != "string":
        raise at.refused("has keys that are no strings")
    made = _settled(_schema(value, at), at, value)
    return {"type": "object"} | (made if made == {KEPT: True} else {"additionalProperties": made})


def _list(origin: Any, arguments: Sequence[Any], at: _Place) -> Json:
    if origin is tuple and arguments[1:] not in ((), (...,)):
        raise at.refused("is a tuple of several types; the items of a list have one type: tuple[T, ...]")
    item = arguments[0] if arguments else Any
    items = _settled(_schema(item, at), at, item)
    unique = {LIST_TYPE: "set"} if origin in _SETS and items.get("type") not in (None, "object", "array") else {}
    return {"type": "array", "items": items} | unique


def _struct(hint: Any, at: _Place) -> Json:
    cls = get_origin(hint) or hint
    if hint in at.within:
        raise at.refused(f"contains {cls.__name__}, which it is part of; a structural schema ends somewhere")
    if cls.__struct_config__.tag is not None or cls.__struct_config__.array_like:
        raise at.refused(
            f"is {cls.__name__}, which has a tag or is written as a list; a structural schema has plain fields"
        )
    within = msgspec.structs.replace(at, within=(*at.within, hint))
    texts = _texts(cls)
    required: list[str] = []
    properties: Json = {}
    for field in msgspec.structs.fields(hint):
        name, here = field.encode_name, within.field(field.encode_name)
        made = _schema(field.type, here)
        if field.name in texts and not any(getattr(note, "description", None) for note in _notes(field.type)):
            made["description"] = texts[field.name]
        if field.required:
            required.append(name)
        else:
            made = _default(field, made, here) | made
        properties[name] = _settled(made, here, field.type)
    text, rules = vars(cls).get("__doc__"), getattr(cls, "cel_rules", ())
    return _ordered(
        ({"description": _line(text)} if text else {})
        | {"type": "object"}
        | ({"required": required} if required else {})
        | ({"properties": properties} if properties else {})
        | ({RULES: list(map(_rule, rules))} if rules else {})
    )


def _default(field: FieldInfo, schema: Json, at: _Place) -> Json:
    """The default of a field. An absent field is None already, so None may not be written either."""
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    if value is None and "nullable" not in _given(_notes(field.type)):
        schema.pop("nullable", None)
    if value is None or value is UNSET or not at.has_defaults:
        return {}
    plain = msgspec.to_builtins(value, order="deterministic")
    try:
        msgspec.convert(plain, field.type)
    except msgspec.ValidationError as error:
        raise at.refused(f"has the default {value!r}, which it may not have: {error}") from error
    return {"default": _without_inner(plain, schema)}


def _without_inner(value: Any, schema: Json) -> Any:
    """A default without what the server adds to it: nulls are none, and fields have defaults of their own."""
    if isinstance(value, list):
        return [_without_inner(each, schema.get("items", {})) for each in value]
    if not isinstance(value, dict):
        return value
    parts: Mapping[str, Json] = schema.get("properties", {})
    others: Any = schema.get("additionalProperties")
    return {
        name: _without_inner(each, parts.get(name) or (others if isinstance(others, dict) else {}))
        for name, each in value.items()
        if name not in parts or (each is not None and ("default", each) not in parts[name].items())
    }


def _bound(made: Json, meta: Meta, at: _Place) -> None:
    """Add what a Meta says of a value."""
    for end, name, is_exclusive in (
        (meta.ge, "minimum", False),
        (meta.gt, "minimum", True),
        (meta.le, "maximum", False),
        (meta.lt, "maximum", True),
    ):
        if end is not None:
            made[name] = end
            if is_exclusive:
                made[f"exclusive{name.capitalize()}"] = True
    for size, prefix in ((meta.min_length, "min"), (meta.max_length, "max")):
        if size is not None:
            if made.get("type") not in _SIZED:
                raise at.refused("has a length, and is of several types")
            made[prefix + _SIZED[made["type"]]] = size
    said = {"multipleOf": meta.multiple_of, "pattern": meta.pattern, "title": meta.title}
    said["description"] = _line(meta.description) if meta.description else None
    made |= {name: value for name, value in said.items() if value is not None}


def _rule(rule: CEL) -> Json:
    said = {"rule": rule.rule, "message": rule.message, "messageExpression": rule.message_expression}
    return {name: text for name, text in (said | {"fieldPath": rule.field_path}).items() if text}


def _notes(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _given(notes: tuple[Any, ...]) -> Json:
    """Keywords that stand as they are."""
    given: Json = {}
    for note in notes:
        given |= getattr(note, "extra_json_schema", None) or {}
    return given


def _texts(cls: type) -> Mapping[str, str]:
    """The string below each field, of a class and those that it is derived from."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        found |= _texts_in(module).get(base.__qualname__, {}) if module is not None else {}
    return found


@cache
def _texts_in(module: ModuleType) -> Mapping[str, Mapping[str, str]]:
    """The string below each field, by class."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # not written in a file that can be read
        return {}
    found: dict[str, dict[str, str]] = {}
    within: list[tuple[str, ast.AST]] = [("", tree)]
    while within:
        prefix, node = within.pop()
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.ClassDef(name=name, body=body):
                    found[prefix + name] = dict(_texts_below(body))
                    within.append((f"{prefix}{name}.", child))
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    within.append((f"{prefix}{name}.<locals>.", child))
                case ast.expr():
                    pass
                case _:
                    within.append((prefix, child))
    return found


def _texts_below(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for part, following in pairwise(body):
        match part, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, _line(text)
            case _:
                pass


def _line(text: str) -> str:
    return " ".join(text.split())


_ORDER: Final = ("description", "title", "type", "format", "nullable", "default", "enum", "required", "properties")


def _settled(made: Json, at: _Place, hint: Any) -> Json:
    """The schema of a value, in the order in which it is printed."""
    if made.get("nullable") and "enum" in made and "nullable" not in _given(_notes(hint)):
        raise at.refused("is one of a few values or None, and no API server takes null there: make None its default")
    return _ordered(made)


def _ordered(made: Json) -> Json:
    return dict(sorted(made.items(), key=lambda item: (*_ORDER, item[0]).index(item[0])))
