"""levelog code that is woken by a condition: classes, an index for each field, and a view that writes nothing."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from levelog_wakes.conditions import FieldCause
from levelog_wakes.fields import CREATED, DELETED, WRITTEN
from levelog_wakes.versions import KindSeen

_HEAD: Final = '''"""Draft: wakes for {plural} when, and only when, a field changes that it waited for."""

from collections.abc import Iterator, Mapping
from typing import Any

from levelog import Index, Level, Operator, Resource

op = Operator("{plural}-draft")


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

@op.index(of={name})
def {index}(each: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """{what}"""
    for key in {keys}:
        yield key, {value}
'''
_VIEW: Final = '''

@op.view(of={name})
def waits(each: Mapping[str, Any]{indices}) -> Level[list[Any]]:
    """Called when something of this changes; say here what you want of it, instead of the same as there is."""
    found: list[Any] = [{found}]
    return Level(desired=found, actual=found)
'''
_UID: Final = '[each["metadata"]["uid"]]'
_OWNERS: Final = '[owner["uid"] for owner in each["metadata"].get("ownerReferences", ())]'
_NAMESPACE: Final = '[each["metadata"].get("namespace", "")]'
_NAME: Final = '["/".join(each["metadata"].get(part, "") for part in ("namespace", "name"))]'
_KEYS: Final = {
    "owned": (_OWNERS, _UID),
    "owner": (_UID, _OWNERS),
    "namespace": (_NAMESPACE, _NAMESPACE),
    "cluster": ('[""]', '[""]'),
}
"""By relation: under which keys the index has a value, and under which the view looks it up; else its name."""


def draft(resource: str, fields: Sequence[FieldCause], kinds: Mapping[str, KindSeen]) -> str:
    """An operator file for the objects of a resource and the fields that their program waits for.

    Where the objects are only named in the spec, the view looks under the parent's own name: put in which field names
    them.
    """
    parts = [_HEAD.format(plural=resource.partition(".")[0])]
    resources = dict.fromkeys((resource, *(cause.resource for cause in fields)))
    parts += [_CLASS.format(name=_class_name(each, kinds), options=_options(each, kinds)) for each in resources]
    indices: list[str] = []
    found: list[str] = []
    for cause in fields:
        value = _value(cause.field)
        if cause.relation == "itself":
            found.append(value)
            continue
        index = _identifier(f"{cause.resource.partition('.')[0]}_{cause.field}", indices)
        indices.append(index)
        what = f"{cause.field} of {cause.resource}.".replace('"', "'").replace("\\", "/")
        keys, looked_up = _KEYS.get(cause.relation, (_NAME, _NAME))
        name = _class_name(cause.resource, kinds)
        parts.append(_INDEX.format(name=name, index=index, what=what, keys=keys, value=value))
        found.append(f"*(value for key in {looked_up} for value in {index}[key])")
    taken = "".join(f", {index}: Index[str, Any]" for index in indices)
    return "".join((*parts, _VIEW.format(name=_class_name(resource, kinds), indices=taken, found=", ".join(found))))


def _value(field: str) -> str:
    """`status.conditions[Ready].status` is read step by step; a key in quotes is one."""
    whole = {CREATED: ["metadata", "uid"], DELETED: ["metadata", "deletionTimestamp"], WRITTEN: ["spec"]}
    steps = re.findall(r'\["?([^\]"]+)"?\]|([^.\[\]]+)', field.partition("[]")[0])
    names = whole.get(field) or [quoted or plain for quoted, plain in steps]
    return f"field({', '.join(['each', *map(json.dumps, names)])})"


def _class_name(resource: str, kinds: Mapping[str, KindSeen]) -> str:
    return re.sub(r"\W", "", f"{_kind(resource, kinds).kind}Object")


def _kind(resource: str, kinds: Mapping[str, KindSeen]) -> KindSeen:
    """The kind in the log, or a guess."""
    guess = KindSeen("v1", resource.partition(".")[0].removesuffix("s").capitalize(), has_namespaces=True)
    return kinds.get(resource, guess)


def _options(resource: str, kinds: Mapping[str, KindSeen]) -> str:
    (plural, _, group), known = resource.partition("."), _kind(resource, kinds)
    options = {"group": group, "version": known.version or "v1", "plural": plural, "kind": known.kind}
    if not known.has_namespaces:
        options["scope"] = "Cluster"
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in options.items() if value)


def _identifier(text: str, taken: Sequence[str]) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"\W+", "_", words).strip("_")
    return name if name not in taken else f"{name}_{len(taken)}"
