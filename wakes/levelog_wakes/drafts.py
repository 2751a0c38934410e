"""levelog code that is woken by a condition: classes, an index for each field, and a view that writes nothing."""

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Final

from levelog_wakes.conditions import FieldCause
from levelog_wakes.fields import CREATED, DELETED, WRITTEN
from levelog_wakes.versions import KindSeen

_HEAD: Final = '''"""Draft: wakes for {what} when, and only when, a field changes that it waited for."""

from collections.abc import Iterator, Mapping
from typing import Any

from levelog import Index, Level, Operator, Resource

op = Operator("{name}")


def field(value: Any, *steps: str) -> Any:
    """A field of an object, or None; items of lists are found by their type."""
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        else:
            value = next((item for item in value or () if item["type"] == step), None)
    return value
'''
_CLASS: Final = """

class {name}(Resource, {options}):
    pass
"""
_INDEX: Final = '''

@op.index(of={cls})
def {index}({one}: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """{what}"""
    namespace = {one}["metadata"].get("namespace", "")
{body}
'''
_VIEW: Final = '''

@op.view(of={cls})
def waits({parameters}) -> Level[list[Any]]:
    """Called when something of this changes; say here what you want of it, instead of the same as there is."""
    namespace, name = {one}["metadata"].get("namespace", ""), {one}["metadata"]["name"]
    found: list[Any] = [{found}]
    return Level(desired=found, actual=found)
'''
_TAKEN: Final = frozenset({"Index", "Level", "Operator", "Resource", "Mapping", "Iterator", "Any"})
_YIELDS: Final = {
    "owned": """    for owner in {one}["metadata"].get("ownerReferences", ()):
        if owner["kind"] == "{kind}":
            yield f"{{namespace}}/{{owner['name']}}", {value}""",
    "namespace": "    yield namespace, {value}",
    "cluster": '    yield "", {value}',
}
_YIELD: Final = """    yield f"{{namespace}}/{{{one}['metadata']['name']}}", {value}"""
_LOOKUPS: Final = {
    "namespace": "*{index}[namespace]",
    "cluster": '*{index}[""]',
    "owner": (
        '*(value for owner in {one}["metadata"].get("ownerReferences", ())'
        " for value in {index}[f\"{{namespace}}/{{owner['name']}}\"])"
    ),
}
_LOOKUP: Final = '*{index}[f"{{namespace}}/{{name}}"]'


def draft(resource: str, fields: Sequence[FieldCause], kinds: Mapping[str, KindSeen]) -> str:
    """An operator file for the objects of a resource and the fields that their program waits for.

    Where the objects are only named in the spec, the view looks under the parent's own name: put in which field names
    them.
    """
    names = {each: _class_name(each, kinds) for each in dict.fromkeys((resource, *(x.resource for x in fields)))}
    one = "parent"
    plural = resource.partition(".")[0]
    parts = [_HEAD.format(what=plural, name=f"{plural}-draft")]
    parts += [_CLASS.format(name=name, options=_options(each, kinds)) for each, name in names.items()]
    indices: list[str] = []
    found: list[str] = []
    for cause in fields:
        value = _value("{one}", cause.field)
        if cause.relation == "itself":
            found.append(value.format(one=one))
            continue
        index = _identifier(f"{cause.resource.partition('.')[0]}_{cause.field}", indices)
        indices.append(index)
        kind = kinds[resource].kind if resource in kinds else names[resource]
        each = _YIELDS.get(cause.relation, _YIELD).format(one="each", kind=kind, value=value.format(one="each"))
        what = f"{cause.field} of {cause.resource}.".replace('"', "'").replace("\\", "/")
        parts.append(_INDEX.format(cls=names[cause.resource], index=index, one="each", what=what, body=each))
        found.append(_LOOKUPS.get(cause.relation, _LOOKUP).format(index=index, one=one))
    parameters = ", ".join([f"{one}: Mapping[str, Any]", *(f"{index}: Index[str, Any]" for index in indices)])
    parts.append(_VIEW.format(cls=names[resource], parameters=parameters, one=one, found=", ".join(found)))
    return "".join(parts)


def _value(one: str, field: str) -> str:
    whole = {CREATED: ("metadata", "uid"), DELETED: ("metadata", "deletionTimestamp"), WRITTEN: ("spec",)}
    steps = whole.get(field) or _steps(field.partition("[]")[0])
    return f"field({one}, {', '.join(map(repr, steps))})".replace("'", '"') if steps else f"field({one})"


def _steps(path: str) -> list[str]:
    """`status.conditions[Ready].status` in its parts; a key in quotes is one."""
    return [quoted or plain for quoted, plain in re.findall(r'\["?([^\]"]+)"?\]|([^.\[\]]+)', path)]


def _class_name(resource: str, kinds: Mapping[str, KindSeen]) -> str:
    kind = kinds[resource].kind if resource in kinds else resource.partition(".")[0].removesuffix("s").capitalize()
    name = re.sub(r"\W", "", kind) or "Object"
    return f"{name}Object" if name in _TAKEN or keyword.iskeyword(name) or not name[0].isalpha() else name


def _options(resource: str, kinds: Mapping[str, KindSeen]) -> str:
    plural, _, group = resource.partition(".")
    known = kinds.get(resource) or KindSeen("v1", "", has_namespaces=True)
    options = [f'version="{known.version or "v1"}"', f'plural="{plural}"']
    if group:
        options.insert(0, f'group="{group}"')
    if known.kind and _class_name(resource, kinds) != known.kind:
        options.append(f'kind="{known.kind}"')
    if not known.has_namespaces:
        options.append('scope="Cluster"')
    return ", ".join(options)


def _identifier(text: str, taken: Sequence[str]) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"\W+", "_", words).strip("_")
    return name if name not in taken else f"{name}_{len(taken)}"
