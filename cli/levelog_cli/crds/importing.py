"""Resource classes written from CustomResourceDefinitions, of which `levelog crd` prints the definitions again."""

import ast
import builtins
import json
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from levelog.resources import Resource, ResourceBase, Struct
from levelog_cli.crds.schemas import INT_OR_STRING, KEPT, LIST_TYPE, SERVERS, Json

_IMPORTS: Final = {
    "datetime": ("date", "datetime"),
    "typing": ("Annotated", "Any", "Literal"),
    "uuid": ("UUID",),
    "msgspec": ("Meta", "convert", "field"),
    "levelog": ("Resource", "Struct"),
}
_TAKEN: Final = {*dir(builtins), *keyword.kwlist, "cel_rules", *(each for names in _IMPORTS.values() for each in names)}
"""Names that mean something inside a class."""
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_FORMATS: Final = {"date-time": "datetime", "date": "date", "byte": "bytes", "uuid": "UUID"}
_STRUCT: Final = frozenset({"type", "properties", "required", "description"})
"""Keywords that a class says."""
_OF_FIELD: Final = frozenset({"description", "nullable", "default"})
"""Keywords that stand beside the type of a field."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _Type(Struct, frozen=True):
    """A type as it is written, and the keywords that it says."""

    text: str
    says: frozenset[str]
    is_class: bool = False


def source_of(definitions: Mapping[str, Json]) -> str:
    """A Python file with a class for each version of each definition.

    The classes have fields, types and defaults. All else, as bounds and rules, stands in `extra_json_schema`.
    """
    writer = _Writer()
    for definition in definitions.values():
        for version in definition["spec"]["versions"]:
            writer.resource(definition, version)
    body = "".join(f"\n\n{text}" for text in writer.classes)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    imports = {module: ", ".join(name for name in names if name in used) for module, names in _IMPORTS.items()}
    lines = {module: f"from {module} import {names}\n" for module, names in imports.items() if names}
    standard = "".join(lines.get(module, "") for module in ("datetime", "typing", "uuid"))
    blocks = ['"""Written by `levelog import-crd`."""\n', standard, lines.get("msgspec", ""), lines["levelog"]]
    return "\n".join(filter(None, blocks)) + body


class _Writer:
    """Collects the source of classes, each after those that it uses."""

    def __init__(self) -> None:
        self.classes: list[str] = []
        self._names: set[str] = {name for names in _IMPORTS.values() for name in names}
        self._in_status = False

    def resource(self, definition: Json, version: Json) -> None:
        kind = definition["spec"]["names"]["kind"]
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        properties = {key: each for key, each in schema.get("properties", {}).items() if key not in SERVERS}
        schema = schema | {"properties": properties}
        name = self._name(_word(kind if version["storage"] else kind + version["name"].capitalize()))
        options = dict(_options(name, definition, version, schema))
        if extra := _unsaid(schema, _STRUCT, not_required=(*SERVERS, "status")):
            options["extra_json_schema"] = extra
        lines = "".join(f"    {key}={_literal(value)},\n" for key, value in options.items())
        self._class(name, f"\n    Resource,\n{lines}", schema, taken={*dir(Resource), *ResourceBase.__annotations__})

    def _name(self, wanted: str) -> str:
        wanted = wanted if wanted.isidentifier() else f"Kind{wanted}"
        name, number = wanted, len(self._names)
        while name in self._names or keyword.iskeyword(name):
            name, number = f"{wanted}{number}", number + 1
        self._names.add(name)
        return name

    def _class(self, name: str, bases: str, schema: Json, taken: Iterable[str] = ()) -> None:
        taken = {*_TAKEN, *taken}
        required = schema.get("required", ())
        properties: Json = schema.get("properties", {})
        is_top = bases != "Struct"
        fields: list[str] = []
        for key, below in properties.items():
            self._in_status = key == "status" if is_top else self._in_status
            fields.append(self._field(name, key, below, taken, is_required=key in required))
        has_default = [key not in required or "default" in below for key, below in properties.items()]
        kw_only = "" if has_default == sorted(has_default) else "    kw_only=True,\n" if is_top else ", kw_only=True"
        said = f"    {_text(schema['description'])}\n" if schema.get("description") else ""
        blank = "\n" if said and fields else ""
        body = said + blank + "".join(fields) or "    pass\n"
        self.classes.append(f"class {name}({bases}{kw_only}):\n{body}")

    def _field(self, owner: str, key: str, schema: Json, taken: set[str], *, is_required: bool) -> str:
        name = _field_name(key)
        while name in taken:
            name += "_"
        taken.add(name)
        made = self._type(owner + _word(key[:1].upper() + key[1:]), schema)
        options = {} if _encoded(name) == key else {"name": _literal(key)}
        extra: Json = {}
        hint = _annotated(made.text, _unsaid(schema, made.says | _OF_FIELD))
        if "default" in schema:
            value = schema["default"]
            options |= _default(value, made.text)
            if self._in_status or not _is_said(value, made.text):
                extra["default"] = value
        elif not is_required:
            options["default"] = "None"
        is_null = options.get("default") == "None"
        if schema.get("nullable") and (is_null or "enum" in schema):
            extra["nullable"] = True
        if (schema.get("nullable") or is_null) and made.text != "Any":
            hint += " | None"
        hint = _annotated(hint, extra)
        value = ", ".join(f"{option}={text}" for option, text in options.items())
        value = f" = field({value})" if options.keys() - {"default"} else f" = {options['default']}" if options else ""
        text = "" if made.is_class else schema.get("description")
        return f"    {name}: {hint}{value}\n" + (f"    {_text(text)}\n" if text else "")

    def _inner(self, name: str, schema: Json) -> str:
        """The type of the items of a list, or of the values of a map."""
        made = self._type(name, schema)
        extra = {"default": schema["default"]} if "default" in schema else {}
        hint = _annotated(made.text, _unsaid(schema, made.says | {"nullable", "default"}))
        if schema.get("nullable"):
            hint += " | None"
            extra |= {"nullable": True} if "enum" in schema else {}
        return _annotated(hint, extra)

    def _type(self, name: str, schema: Json) -> _Type:
        type_, items, others = schema.get("type"), schema.get("items"), schema.get("additionalProperties")
        if schema.get(INT_OR_STRING):
            return _Type("int | str", frozenset(() if "type" in schema else {INT_OR_STRING}))
        if _SCALARS.get(str(type_)) in ("str", "int") and schema.get("enum"):
            values = [value for value in schema["enum"] if value is not None]
            says = {"type"} if None in schema["enum"] or not values else {"type", "enum"}
            return _Type(f"Literal[{', '.join(map(_literal, values))}]" if values else "None", frozenset(says))
        if type_ == "array" and isinstance(items, dict):
            is_set = schema.get(LIST_TYPE) == "set" and items.get("type") in _SCALARS and not items.get("nullable")
            says = {"type", "items", LIST_TYPE} if is_set else {"type", "items"}
            return _Type(f"{'frozenset' if is_set else 'list'}[{self._inner(name, items)}]", frozenset(says))
        if type_ == "object" and isinstance(others, dict) and others:
            return _Type(f"dict[str, {self._inner(name, others)}]", frozenset({"type", "additionalProperties"}))
        if type_ == "object" and (schema.get("properties") or not (schema.get(KEPT) or others)):
            name = self._name(name)
            self._class(name, "Struct", schema)
            return _Type(name, _STRUCT, is_class=True)
        if type_ == "object":
            return _Type("dict[str, Any]", frozenset({"type", KEPT} if schema.get(KEPT) else ()))
        if type_ == "string" and (of_format := _FORMATS.get(schema.get("format", ""))):
            return _Type(of_format, frozenset({"type", "format"}))
        scalar = _SCALARS.get(str(type_), "Any")
        return _Type(
            scalar, frozenset({KEPT} if scalar == "Any" and type_ is None else {"type"} if scalar != "Any" else ())
        )


def _options(name: str, definition: Json, version: Json, schema: Json) -> Iterator[tuple[str, Any]]:
    """Keywords of the class statement."""
    spec = definition["spec"]
    names, kind, group = spec["names"], spec["names"]["kind"], spec["group"]
    yield from {"group": group, "version": version["name"], "plural": names["plural"]}.items()
    if f".{group}".endswith(".k8s.io"):
        yield "crd", True
    if name != kind:
        yield "kind", kind
    if version["storage"] and len(spec["versions"]) > 1:
        yield "storage", True
    if spec["scope"] != "Namespaced":
        yield "scope", spec["scope"]
    if not version["served"]:
        yield "served", False
    if version.get("deprecated"):
        yield "deprecated", version.get("deprecationWarning") or True
    if version["storage"]:
        annotations: Json = definition["metadata"].get("annotations") or {}
        of_all = {
            "short_names": names.get("shortNames"),
            "categories": names.get("categories"),
            "singular": names.get("singular", "").replace(kind.lower(), "", names.get("singular") == kind.lower()),
            "list_kind": names.get("listKind", "").replace(f"{kind}List", "", names.get("listKind") == f"{kind}List"),
            "annotations": {key: text for key, text in annotations.items() if key != _LAST_APPLIED},
        }
        yield from ((key, value) for key, value in of_all.items() if value)
    if columns := version.get("additionalPrinterColumns"):
        yield "columns", {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in columns}
    subresources = version.get("subresources") or {}
    if ("status" in subresources) != ("status" in schema["properties"]):
        yield "status_subresource", "status" in subresources
    if scale := subresources.get("scale"):
        yield "scale", scale
    if selectable := version.get("selectableFields"):
        yield "selectable_fields", [each["jsonPath"] for each in selectable]


def _unsaid(schema: Json, says: Collection[str], not_required: Sequence[str] = ()) -> Json:
    """The keywords that stand as they are."""
    extra = {key: value for key, value in schema.items() if key not in says}
    properties: Json = schema.get("properties", {})
    wanted = [name for name in schema.get("required", ()) if name not in SERVERS or not not_required]
    found = {
        key for key in wanted if "default" not in properties.get(key, {"default": None}) and key not in not_required
    }
    if "required" in says and set(wanted) != found:
        extra["required"] = wanted
    return extra


def _annotated(hint: str, extra: Json) -> str:
    return f"Annotated[{hint}, Meta(extra_json_schema={_literal(extra)})]" if extra else hint


def _is_said(value: Any, hint: str) -> bool:
    """Whether a class can have the default as it stands."""
    if hint in _FORMATS.values() or hint.startswith("frozenset["):
        return bool(value == [])
    return (value is not None and not isinstance(value, dict | list)) or value in ([], {})


def _default(value: Any, hint: str) -> dict[str, str]:
    """Option of a field: scalars as they are, anything else converted for each object, as it may be changed."""
    if value is None or (value in ([], {}) and hint.startswith(("list[", "dict["))):
        return {"default": _literal(value)}
    if isinstance(value, str | int | float) and hint not in _FORMATS.values():
        return {"default": _literal(value)}
    return {"default_factory": f"lambda: convert({_literal(value)}, {hint})"}


def _field_name(key: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)).lower().strip("_")
    return name if name.isidentifier() else f"field_{name}"


def _word(text: str) -> str:
    """The text as part of a name: whoever wrote the definition may not write code."""
    return re.sub(r"[^a-zA-Z0-9_]", "", text)


@cache
def _encoded(name: str) -> str:
    """The name in JSON of a field of a Struct."""
    [field] = msgspec.structs.fields(msgspec.defstruct("Named", [(name, int)], bases=(Struct,)))
    return field.encode_name


def _text(text: str) -> str:
    line = " ".join(text.split())
    is_plain = line.isprintable() and "\\" not in line and '"' not in line
    return f'"""{line}"""' if is_plain else _literal(line)


def _literal(value: Any) -> str:
    match value:
        case str() if value.isprintable() or value.isascii():  # else JSON writes halves of characters
            return json.dumps(value, ensure_ascii=not value.isprintable())
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
        case _:
            return repr(value)
