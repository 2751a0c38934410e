"""The target of a request, from its URL path; and authorization: who may do what with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from levelog_sandbox.api import refusals
from levelog_sandbox.schemas.registry import Registry, ServedResource

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
Json = dict[str, Any]
USER: Final = "sandbox-user"
TOKEN: Final = "levelog-sandbox"  # noqa: S105 - of the kubeconfig; nobody looks at it


class RequestTarget(NamedTuple):
    """The target of a request; `name` is empty for a collection."""

    resource: ServedResource
    namespace: str
    name: str
    subresource: str


def review(registry: Registry, path: str) -> ServedResource | None:
    """The kind of review that a path asks for; None for other paths."""
    match path.strip("/").split("/"):
        case ["apis", group, version, plural]:
            return registry.reviews.get((group, version, plural))
        case _:
            return None


def target(registry: Registry, path: str) -> RequestTarget | None:
    """The target of `/api/v1/…` or `/apis/GROUP/VERSION/…`; None for paths that name no resource.

    Raises `StatusError` 400, 404, `NoSuchPathError` for a resource or subresource that is not served.
    """
    parts = path.split("/")[1:]
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and (group or rest[2] != "status"):
        namespace, rest = rest[1], rest[2:]
    resource = registry.at(group, version, rest[0])
    name, subresource = (*rest[1:3], "", "")[:2]
    is_scope_right = bool(namespace) is resource.namespaced or not (namespace or name)
    if not is_scope_right or len(rest) > 3:
        raise refusals.NoSuchPathError(path) if resource.is_custom else refusals.no_such_resource()
    if not _has(resource, subresource):
        if resource.is_custom:
            raise refusals.not_found(resource.group, resource.plural, name)
        raise refusals.no_such_resource()
    if "%" in name:
        raise refusals.bad_request(f"Name parameter invalid: \"{name}\": may not contain '%'")
    return RequestTarget(resource, namespace, name, subresource)


def _has(resource: ServedResource, subresource: str) -> bool:
    match subresource:
        case "":
            return True
        case "status":
            return resource.has_status
        case _:
            return subresource == "scale" and resource.scale is not None


def verb_of(method: str, at: RequestTarget, query: Mapping[str, str]) -> str:
    """Kubernetes' verb for a request. Raises `StatusError` 405, `NoSuchPathError` for a method that a path lacks."""
    if method in {"GET", "HEAD"}:
        is_watch = is_true(query.get("watch", "false"))
        return "get" if at.name else "watch" if is_watch else "list"
    if not at.namespace and at.resource.namespaced:
        # Across namespaces there is only reading.
        raise refusals.NoSuchPathError(at.resource.name) if at.resource.is_custom else refusals.method_not_allowed()
    is_allowed = {"POST": not at.name, "PUT": at.name, "PATCH": at.name, "DELETE": not at.subresource}
    if not is_allowed.get(method):
        raise refusals.method_not_allowed()
    verb = VERBS[method] if method != "DELETE" else "delete" if at.name else "deletecollection"
    if verb not in at.resource.verbs:
        raise refusals.method_not_allowed()
    return verb


def is_true(text: str) -> bool:
    """A boolean in a query, as the server reads it: everything but 0 and false is true."""
    return text.lower() not in {"0", "false"}


@dataclass(frozen=True, slots=True)
class Denial:
    """A verb that is refused on a resource (`plural` or `plural.group`); `*` stands for any."""

    verb: str
    resource: str
    namespace: str = "*"
    subresource: str = "*"

    def covers(self, verb: str, resource: str, namespace: str, subresource: str) -> bool:
        """Whether the denial applies to a request; who asks for any verb or resource asks for the denied one too."""
        denied = (self.verb, self.resource, self.namespace, self.subresource)
        asked = ({verb, "*"}, {resource, "*"}, {namespace, "*"}, {subresource, "*"})
        is_any = (verb == "*", resource == "*", False, subresource == "*")
        return all(mine in theirs or wide for mine, theirs, wide in zip(denied, asked, is_any, strict=True))


class Access:
    """The deny list, which may be changed while the sandbox runs."""

    def __init__(self, denials: Sequence[Denial] = ()) -> None:
        self.denials = list(denials)

    def is_allowed(self, verb: str, resource: str, namespace: str, subresource: str) -> bool:
        """Whether no denial covers a request; `resource` is `plural` or `plural.group`, or a path."""
        return not any(denial.covers(verb, resource, namespace, subresource) for denial in self.denials)

    def require(self, verb: str, target: RequestTarget) -> None:
        """Raises `StatusError` 403 naming verb and resource."""
        if not self.denials:
            return
        resource = target.resource
        verb = "patch" if verb == "apply" else verb
        if self.is_allowed(verb, resource.name, target.namespace, target.subresource):
            return
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        what = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
        why = f'User "{USER}" cannot {verb} resource "{what}" in API group "{resource.group}" {where}'
        raise refusals.forbidden(resource.group, resource.plural, target.name, why)
