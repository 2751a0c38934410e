"""Resource classes written from CustomResourceDefinitions, of which `levelog crd` prints the definitions again."""

import builtins
import json
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from levelog.resources import Struct
from levelog_cli.crds.schemas import INT_OR_STRING, KEPT, LIST_TYPE, RULES, SERVERS, Json

_IMPORTS: Final = {
    "datetime": ("date", "datetime"),
    "typing": ("Annotated", "Any", "Literal"),
    "uuid": ("UUID",),
    "msgspec": ("Meta", "convert", "field"),
    "levelog": ("CEL", "Resource", "Struct"),
}
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_FORMATS: Final = {"date-time": "datetime", "date": "date", "byte": "bytes", "uuid": "UUID"}
_RULE: Final = {"message": "message", "messageExpression": "message_expression", "fieldPath": "field_path"}
_SIZES: Final = {"string": "Length", "array": "Items", "object": "Properties"}
_SAID: Final = {"type", "properties", "required", "items", "additionalProperties", "enum", "default", "description"}
_SAID_TOO: Final = {"nullable", RULES, KEPT, INT_OR_STRING, "exclusiveMinimum", "exclusiveMaximum"}


def source_of(definitions: Mapping[str, Json]) -> str:
    """A Python file with a class for each version of each definition.

    What a class cannot say of a field stands in its `extra_json_schema`.
    """
    writer = _Writer()
    for definition in definitions.values():
        for version in definition["spec"]["versions"]:
            writer.resource(definition["spec"], version)
    body = "".join(f"\n\n{text}" for text in writer.classes)
    used = set(re.findall(r"\w+", body))
    imports = {module: ", ".join(name for name in names if name in used) for module, names in _IMPORTS.items()}
    lines = [f"from {module} import {names}\n" for module, names in imports.items() if names]
    own = [line for line in lines if line.startswith("from levelog")]
    library = [line for line in lines if line.startswith("from msgspec")]
    standard = [line for line in lines if line not in own + library]
    blocks = [
        '"""Written by `levelog import-crd`."""\n',
        *("".join(block) for block in (standard, library, own) if block),
    ]
    return "\n".join(blocks) + body


class _Writer:
    """Collects the source of classes, each after those that it uses."""

    def __init__(self) -> None:
        self.classes: list[str] = []
        self._names: set[str] = {name for names in _IMPORTS.values() for name in names}

    def resource(self, spec: Json, version: Json) -> None:
        kind = spec["names"]["kind"]
        name = _word(kind if version["storage"] else kind + version["name"].capitalize())
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        properties = {key: each for key, each in schema.get("properties", {}).items() if key not in SERVERS}
        options = (f"    {key}={_literal(value)},\n" for key, value in _options(spec, version))
        self._class(name, f"\n    Resource,\n{''.join(options)}", schema | {"properties": properties})

    def _class(self, wanted: str, bases: str, schema: Json) -> str:
        name = wanted if wanted not in self._names else f"{wanted}{len(self._names)}"
        self._names.add(name)
        taken = {*dir(builtins), *keyword.kwlist, *(each for names in _IMPORTS.values() for each in names)}
        fields = [
            self._field(name, key, below, taken, is_required=key in schema.get("required", ()))
            for key, below in schema.get("properties", {}).items()
        ]
        required = [key in schema.get("required", ()) for key in schema.get("properties", {})]
        is_in_order = required == sorted(required, reverse=True)
        options = "" if is_in_order else "    kw_only=True,\n" if bases.endswith("\n") else ", kw_only=True"
        said = f"    {_text(schema['description'])}\n" if schema.get("description") else ""
        blank = "\n" if said and fields else ""
        rules = "".join(f"@{_rule(rule)}\n" for rule in schema.get(RULES, ()))
        body = said + blank + "".join(fields) or "    pass\n"
        self.classes.append(f"{rules}class {name}({bases}{options}):\n{body}")
        return name

    def _field(self, owner: str, key: str, schema: Json, taken: set[str], *, is_required: bool) -> str:
        hint, is_class = self._hint(owner + _word(key[:1].upper() + key[1:]), schema)
        name = _field_name(key)
        while name in taken:
            name += "_"
        taken.add(name)
        options = {} if _encoded(name) == key else {"name": _literal(key)}
        if "default" in schema:
            options |= _default(schema["default"], hint)
        elif not is_required:
            hint += "" if hint == "Any" or hint.endswith("None") else " | None"
            options["default"] = "None"
        value = ", ".join(f"{option}={text}" for option, text in options.items())
        value = f" = field({value})" if options.keys() - {"default"} else f" = {options['default']}" if options else ""
        text = "" if is_class else schema.get("description")
        return f"    {name}: {hint}{value}\n" + (f"    {_text(text)}\n" if text else "")

    def _hint(self, name: str, schema: Json) -> tuple[str, bool]:
        plain, is_class = self._plain(name, schema)
        said, extra = _bounds(schema)
        if schema.get(LIST_TYPE) == "set" and plain.startswith("frozenset"):
            extra.pop(LIST_TYPE)
        if "format" in extra and plain in _FORMATS.values():
            extra.pop("format")
        meta = [f"{key}={_literal(value)}" for key, value in said.items()]
        meta += [f"extra_json_schema={_literal(extra)}"] if extra else []
        notes = [f"Meta({', '.join(meta)})"] if meta else []
        notes += [] if is_class else map(_rule, schema.get(RULES, ()))
        hint = f"Annotated[{', '.join([plain, *notes])}]" if notes else plain
        return f"{hint} | None" if schema.get("nullable") else hint, is_class

    def _plain(self, name: str, schema: Json) -> tuple[str, bool]:
        """The type without what else is said of it, and whether it is a class that was written for it."""
        type_ = schema.get("type")
        if schema.get(INT_OR_STRING):
            return "int | str", False
        if "enum" in schema:
            return f"Literal[{', '.join(map(_literal, schema['enum']))}]", False
        if type_ == "array" and "items" in schema:
            items, _ = self._hint(name, schema["items"])
            is_set = schema.get(LIST_TYPE) == "set" and schema["items"].get("type") in _SCALARS
            return f"{'frozenset' if is_set else 'list'}[{items}]", False
        if type_ == "object" and schema.get("additionalProperties"):
            return f"dict[str, {self._hint(name, schema['additionalProperties'])[0]}]", False
        if type_ == "object" and schema.get(KEPT):
            return "dict[str, Any]", False
        if type_ == "object":
            return self._class(name, "Struct", schema), True
        of_format = _FORMATS.get(schema.get("format", "")) if type_ == "string" else None
        return of_format or _SCALARS.get(str(type_), "Any"), False


def _options(spec: Json, version: Json) -> Iterator[tuple[str, Any]]:
    """Keywords of the class statement."""
    names = spec["names"]
    yield from {"group": spec["group"], "version": version["name"], "plural": names["plural"]}.items()
    if not version["storage"]:
        yield "kind", names["kind"]
    elif len(spec["versions"]) > 1:
        yield "storage", True
    if spec["scope"] != "Namespaced":
        yield "scope", spec["scope"]
    if not version["served"]:
        yield "served", False
    if version.get("deprecated"):
        yield "deprecated", version.get("deprecationWarning") or f"{version['name']} is deprecated"
    for key, given in (("short_names", "shortNames"), ("categories", "categories")):
        if names.get(given) and version["storage"]:
            yield key, names[given]
    columns = version.get("additionalPrinterColumns", [])
    for key, is_wide in (("columns", False), ("wide_columns", True)):
        shown = {one["name"]: one["jsonPath"] for one in columns if bool(one.get("priority")) is is_wide}
        if shown:
            yield key, shown
    if scale := version.get("subresources", {}).get("scale"):
        paths = (scale.get(key) for key in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath"))
        yield "scale", [path for path in paths if path]


def _bounds(schema: Json) -> tuple[Json, Json]:
    """What a Meta says of a value by its own names, and the rest."""
    said: Json = {}
    extra = {key: value for key, value in schema.items() if key not in _SAID | _SAID_TOO}
    type_ = schema.get("type")
    if type_ in ("integer", "number") and "enum" not in schema:
        for key, inclusive, exclusive in (("minimum", "ge", "gt"), ("maximum", "le", "lt")):
            if key in extra:
                said[exclusive if schema.get(f"exclusive{key.capitalize()}") else inclusive] = extra.pop(key)
        if "multipleOf" in extra:
            said["multiple_of"] = extra.pop("multipleOf")
    for key in ("min", "max"):
        if (size := key + _SIZES.get(str(type_), "")) in extra and "properties" not in schema:
            said[f"{key}_length"] = extra.pop(size)
    if type_ == "string" and "enum" not in schema and "pattern" in extra and _is_pattern(extra["pattern"]):
        said["pattern"] = extra.pop("pattern")
    return said, extra


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _default(value: Any, hint: str) -> dict[str, str]:
    """Option of a field: scalars as they are, anything else converted for each object, as it may be changed."""
    if value in ([], {}) and hint.removeprefix("Annotated[").startswith(("list[", "dict[")):
        return {"default": _literal(value)}
    if isinstance(value, str | int | float) and not hint.startswith(tuple(_FORMATS.values())):
        return {"default": _literal(value)}
    return {"default_factory": f"lambda: convert({_literal(value)}, {hint})"}


def _rule(rule: Json) -> str:
    more = "".join(f", {name}={_literal(rule[key])}" for key, name in _RULE.items() if key in rule)
    return f"CEL({_literal(rule['rule'])}{more})"


def _field_name(key: str) -> str:
    name = re.sub(r"\W", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)).lower().strip("_")
    return name if name.isidentifier() else f"field_{name}"


def _word(text: str) -> str:
    """The text as part of a name: whoever wrote the definition may not write code."""
    return re.sub(r"\W", "", text)


def _encoded(name: str) -> str:
    """The name in JSON of a field of a Struct."""
    [field] = msgspec.structs.fields(msgspec.defstruct("Named", [(name, int)], bases=(Struct,)))
    return field.encode_name


def _text(text: str) -> str:
    line = " ".join(text.split())
    return json.dumps(line, ensure_ascii=False) if "\\" in line or '"' in line else f'"""{line}"""'


def _literal(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
        case _:
            return repr(value)
