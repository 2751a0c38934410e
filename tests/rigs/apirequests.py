"""What a request asks of a Kubernetes API, read from the request alone."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REVIEWS = (".authentication.k8s.io", ".authorization.k8s.io")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Point(NamedTuple):
    """A place in a run where a request can fail; the same in each run that asks the same of the same objects.

    `occurrence` counts from 1 the requests that are alike in everything else.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    occurrence: int

    def __str__(self) -> str:
        named = "/".join(part for part in (self.resource, self.namespace, self.name, self.subresource) if part)
        return f"{self.verb} {named} #{self.occurrence}"


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """One request; `number` counts from 1 in the order of arrival.

    `verb` is get, list, watch, create, update, patch (apply too: see `content_type`), delete or deletecollection.
    `resource` is `plural` or `plural.group`, or the path itself, with the verb get, where that names none (`/version`).
    `name` of a creation is that in its body, empty if the server makes one.
    """

    number: int
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    occurrence: int
    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    user_agent: str
    body: bytes = field(repr=False)

    @property
    def point(self) -> Point:
        """Where a run with this request can fail."""
        return Point(self.verb, self.resource, self.namespace, self.name, self.subresource, self.occurrence)

    @property
    def is_write(self) -> bool:
        """Whether it asks for a change of something stored, which a review of access does not."""
        return self.verb in WRITES and not self.resource.endswith(_REVIEWS)


Where = Callable[[ApiRequest], bool]


def asks(
    verb: str | None = None, resource: str | None = None, *, name: str | None = None, user_agent: str = ""
) -> Where:
    """Whether a request is of this kind; what is None is not looked at. `user_agent` is how it begins."""

    def is_such(request: ApiRequest) -> bool:
        asked = ((verb, request.verb), (resource, request.resource), (name, request.name))
        return all(want in (None, is_) for want, is_ in asked) and request.user_agent.startswith(user_agent)

    return is_such


def at(point: Point) -> Where:
    """Whether a request is the one at this point."""
    return lambda request: request.point == point


class RequestReader:
    """Numbers requests and tells which points they are."""

    def __init__(self) -> None:
        self._number = 0
        self._alike: Counter[tuple[str, ...]] = Counter()

    def read(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> ApiRequest:
        """`target` is path and query as they stand in the request's first line."""
        self._number += 1
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        asked = _asked(method, url.path, is_watch=query.get("watch", "") in {"1", "true"}, body=body)
        self._alike[asked] += 1
        verb, resource, namespace, name, subresource = asked
        return ApiRequest(
            number=self._number,
            verb=verb,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            occurrence=self._alike[asked],
            method=method,
            path=url.path,
            query=query,
            content_type=headers.get("Content-Type", ""),
            user_agent=headers.get("User-Agent", ""),
            body=body,
        )


def _asked(method: str, path: str, *, is_watch: bool, body: bytes) -> tuple[str, str, str, str, str]:
    """Verb, resource, namespace, name, subresource."""
    parts = [unquote(part) for part in path.split("/")[1:]]
    if parts[0] == "api" and len(parts) >= 3:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, rest = parts[1], parts[3:]
    else:
        return "get", path, "", "", ""
    namespace = ""
    # A namespace is an object too: /namespaces/a is one, /namespaces/a/status its subresource, /namespaces/a/pods not.
    if rest[0] == "namespaces" and len(rest) >= 3 and (group or rest[2] not in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *_ = [*rest, "", ""]
    if method in {"GET", "HEAD"}:
        verb = "watch" if is_watch else "get" if name else "list"
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    if verb == "create" and not name:
        name = metadata_in(body).get("name", "")
    return verb, f"{plural}.{group}" if group else plural, namespace, name, subresource


def metadata_in(body: bytes) -> dict[str, Any]:
    """Of an object; nothing of YAML, protobuf or nonsense: the server will see what it makes of that."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any]).get("metadata") or {}
    except msgspec.DecodeError:
        return {}
