"""Label and field selectors: which objects a list or watch shows.

Field selectors reach `metadata.name`, `metadata.namespace`, and the paths that the server indexes per kind; another
path is refused with 400, as by the server.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from levelog_sandbox import errors
from levelog_sandbox.metadata import is_label_key

Json = dict[str, Any]
Matches = Callable[[Json], bool]

# Origin: the field label conversion functions of kube-apiserver 1.36 (pkg/apis/*/v1/conversion.go).
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
}
_TERM: Final = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<missing>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()<>]+)\s*(?:(?P<operator>==|=|!=)\s*(?P<value>[^\s,()=!]*)"
    r"|(?P<set>\s(?:in|notin))\s*\((?P<values>[^)]*)\)"
    r"|(?P<order>[<>])\s*(?P<bound>-?\d+))?)\s*(?:,|$)"
)


def label_selector(text: str) -> Matches | None:
    """A test of an object by its labels; None when the selector is empty. Raises `StatusError` 400 on bad syntax."""
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text) or (position and text.rstrip().endswith(",")):
        term = _TERM.match(text, position)
        key = term and (term["key"] or term["missing"])
        if term is None or key is None or not is_label_key(key):
            raise errors.bad_request(f"unable to parse requirement: {text[position:]!r} in label selector {text!r}")
        tests.append(_label_test(term))
        position = term.end()
    if not tests:
        return None
    return lambda body: all(test(body["metadata"].get("labels") or {}) for test in tests)


def _label_test(term: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    if term["absent"]:
        missing = term["missing"]
        return lambda labels: missing not in labels
    key: str = term["key"]
    if term["operator"]:
        value = term["value"]
        if term["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if term["set"]:
        values = {value.strip() for value in term["values"].split(",")}
        if term["set"].strip() == "notin":
            return lambda labels: labels.get(key) not in values
        return lambda labels: key in labels and labels[key] in values
    if term["order"]:
        bound, is_less = int(term["bound"]), term["order"] == "<"
        return lambda labels: _is_beyond(labels.get(key, ""), bound, is_less=is_less)
    return lambda labels: key in labels


def _is_beyond(text: str, bound: int, *, is_less: bool) -> bool:
    try:
        number = int(text)
    except ValueError:
        return False
    return number < bound if is_less else number > bound


def field_selector(text: str, resource: str, selectable: tuple[str, ...] = ()) -> Matches | None:
    """A test of an object by its fields; `resource` is `plural.group`, `selectable` what a custom resource declares."""
    allowed = ("metadata.name", "metadata.namespace", *FIELDS.get(resource, ()), *selectable)
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        parsed = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if parsed is None:
            raise errors.bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        path, operator, value = parsed.groups()
        if path not in allowed:
            if resource in FIELDS:
                raise errors.bad_request(f"field label not supported: {path}")
            known = ", ".join(f'"{name}"' for name in allowed)
            raise errors.bad_request(f'"{path}" is not a known field selector: only {known}')
        tests.append((tuple(path.split(".")), value, operator == "!="))
    if not tests:
        return None
    return lambda body: all((_value_at(body, path) == value) is not is_not for path, value, is_not in tests)


def _value_at(body: Json, path: tuple[str, ...]) -> str:
    value: Any = body
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def both(first: Matches | None, second: Matches | None) -> Matches | None:
    """One test for two; None passes everything."""
    if first is None or second is None:
        return first or second
    return lambda body: first(body) and second(body)
