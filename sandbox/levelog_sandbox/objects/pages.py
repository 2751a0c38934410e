"""Get and list: selectors, consistent pages, and their continue tokens.

Field selectors reach `metadata.name`, `metadata.namespace`, and the paths that the server indexes per kind; another
path is refused with 400, as by the server.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from levelog_sandbox.api import refusals
from levelog_sandbox.objects.metadata import faults_of_label, is_label_key
from levelog_sandbox.objects.revisions import Store, Stored, in_etcd
from levelog_sandbox.schemas.registry import ServedResource

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
            raise refusals.bad_request(f"unable to parse requirement: {text[position:]!r} in label selector {text!r}")
        given = term["value"] if term["operator"] else term["values"]
        values = [] if given is None else sorted({value.strip() for value in given.split(",")})
        for place, value in enumerate(values):
            for why in faults_of_label(f"values[{place}][{key}]", value):
                raise refusals.bad_request(f"unable to parse requirement: {why.field}: {why.message}")
        tests.append(_label_test(term, values))
        position = term.end()
    if not tests:
        return None
    return lambda body: all(test(body["metadata"].get("labels") or {}) for test in tests)


def _label_test(term: re.Match[str], values: Collection[str]) -> Callable[[Mapping[str, str]], bool]:
    if term["absent"]:
        missing = term["missing"]
        return lambda labels: missing not in labels
    key: str = term["key"]
    if values:
        if term["operator"] == "!=" or "notin" in (term["set"] or ""):
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
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
            raise refusals.bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        path, operator, value = parsed.groups()
        if path not in allowed:
            if resource in FIELDS:
                raise refusals.bad_request(f"field label not supported: {path}")
            known = ", ".join(f'"{name}"' for name in allowed)
            raise refusals.bad_request(f'"{path}" is not a known field selector: only {known}')
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


TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    """Objects of a list at one revision, the token for the rest, and how many those are (None: not known)."""

    objects: list[Stored]
    revision: int
    continue_token: str
    remaining: int | None


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place where a list goes on: after a key, at a revision (-1: at the current one)."""

    rv: int
    ns: str
    name: str

    def encode(self) -> str:
        """The token as it goes over the wire."""
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Token":
        """The token that a client sent back. Raises `StatusError` 400."""
        try:
            return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise refusals.bad_request(f"continue key is not valid: {error}") from error


def selection(resource: ServedResource, query: Mapping[str, str]) -> Matches | None:
    """The test that a request's selectors make together. Raises `StatusError` 400."""
    return both(
        label_selector(query.get("labelSelector", "")),
        field_selector(query.get("fieldSelector", ""), resource.name, resource.selectable),
    )


def list_page(store: Store, resource: ServedResource, namespace: str, query: Mapping[str, str]) -> Page:
    """One page of a list.

    Raises `StatusError` 400 for parameters that do not fit together, 410 for a revision that is compacted,
    504 for one that is not reached yet.
    """
    _check(query)
    matches = selection(resource, query)
    collection = store.collection(resource.storage)
    limit = number(query.get("limit", ""))
    after = ""
    revision = store.revision
    version = query.get("resourceVersion", "")
    if continue_text := query.get("continue", ""):
        token = Token.decode(continue_text)
        after = in_etcd((token.ns, token.name))
        if token.rv >= 0:
            revision = token.rv
        if revision < collection.compacted:
            raise refusals.expired(TOO_OLD, Token(-1, token.ns, token.name).encode())
    elif version == "0":
        limit = 0  # served from the watch cache, which does not page
    elif version:
        try:
            asked = version_number(version)
        except refusals.StatusError as error:
            raise refusals.bad_request(f"invalid resource version: {error}") from error
        if asked > store.revision:
            raise too_large(asked, store.revision)
        if query.get("resourceVersionMatch") == "Exact":
            if asked < collection.compacted:
                raise refusals.expired(f"The resourceVersion for the provided list is too old. ({asked})")
            revision = asked
    objects = collection.as_of(revision)
    chosen = [
        stored
        for stored in objects
        if (not namespace or stored.namespace == namespace)
        and in_etcd((stored.namespace, stored.name)) > after
        and (matches is None or matches(stored.body))
    ]
    if limit <= 0 or len(chosen) <= limit:
        return Page(chosen, revision, "", None)
    last = chosen[limit - 1]
    remaining = len(chosen) - limit if matches is None else None
    return Page(chosen[:limit], revision, Token(revision, last.namespace, last.name).encode(), remaining)


def list_metadata(resource: ServedResource, page: Page) -> Json:
    """A list's metadata; that of custom resources always has the token, though it be empty."""
    about: Json = {"resourceVersion": str(page.revision)}
    if resource.is_custom:
        about["continue"] = ""
    if page.continue_token:
        about["continue"] = page.continue_token
        if page.remaining is not None:
            about["remainingItemCount"] = page.remaining
    return about


def encode_list(resource: ServedResource, page: Page) -> bytes:
    """The list as JSON; items of core kinds come without apiVersion and kind, as the server sends them."""
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": list_metadata(resource, page)}
    items = [stored.encoded_as(resource) for stored in page.objects]
    if not resource.is_custom:
        prefix = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind})[:-1] + b","
        items = [b"{" + item[len(prefix) :] if item.startswith(prefix) else item for item in items]
    return b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], b",".join(items))


def _check(query: Mapping[str, str]) -> None:
    """Refuse list parameters that do not fit together. Raises `StatusError` 400, 422."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if query.get("continue") and version not in {"", "0"}:
        raise refusals.bad_request("specifying resource version is not allowed when using continue")
    if "sendInitialEvents" in query:
        raise bad_options("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and not version:
        raise bad_options(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match not in {"", "Exact", "NotOlderThan"}:
        cause = refusals.unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
        raise refusals.invalid("meta.k8s.io", "ListOptions", "", [cause])
    if match == "Exact" and version == "0":
        raise bad_options("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def version_number(text: str) -> int:
    """A resourceVersion that a client sent. Raises `StatusError` 500, as the server does; a list makes it 400."""
    if not re.fullmatch("[0-9]{1,20}", text):
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise refusals.StatusError(500, "", why)
    return int(text)


def check_reached(store: Store, version: str) -> None:
    """Raise `StatusError` 504 for a revision that is still to come, 500 for what is none."""
    if (asked := version_number(version or "0")) > store.revision:
        raise too_large(asked, store.revision)


def too_large(asked: int, current: int) -> refusals.StatusError:
    """504: a revision that is not reached yet."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return refusals.StatusError(504, "Timeout", message, details={**details, "retryAfterSeconds": 1})


def number(text: str) -> int:
    """A number in a query; 0 when it is left out. Raises `StatusError` 400."""
    if not re.fullmatch("[+-]?[0-9]{1,19}", text or "0"):
        raise refusals.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or "0")


def bad_options(field: str, why: str) -> refusals.StatusError:
    """422: parameters of a list or watch that contradict one another."""
    cause = refusals.RefusalCause(field, "FieldValueForbidden", f"Forbidden: {why}")
    return refusals.invalid("meta.k8s.io", "ListOptions", "", [cause])
