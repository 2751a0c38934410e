"""From a URL's path to what it names."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from levelog_sandbox import errors
from levelog_sandbox.resources import Registry, Resource

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Target(NamedTuple):
    """What a request is about; `name` is empty for a collection."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


def target(registry: Registry, path: str) -> Target | None:
    """The target of `/api/v1/…` or `/apis/GROUP/VERSION/…`; None for paths that name no resource.

    Raises `StatusError` 404, `NoSuchPathError` for a resource or subresource that is not served.
    """
    parts = [unquote(part) for part in path.split("/")[1:]]
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and (group or rest[2] not in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    resource = registry.at(group, version, rest[0])
    name, subresource = (*rest[1:3], "", "")[:2]
    is_scope_right = bool(namespace) is resource.namespaced or not (namespace or name)
    if not is_scope_right or len(rest) > 3:
        raise errors.NoSuchPathError(path) if resource.is_custom else errors.no_such_resource()
    if not _has(resource, subresource):
        if resource.is_custom:
            raise errors.not_found(resource.group, resource.plural, name)
        raise errors.no_such_resource()
    return Target(resource, namespace, name, subresource)


def _has(resource: Resource, subresource: str) -> bool:
    match subresource:
        case "":
            return True
        case "status":
            return resource.has_status
        case _:
            return subresource == "finalize" and resource.name == "namespaces"


def verb_of(method: str, at: Target, query: Mapping[str, str]) -> str:
    """Kubernetes' verb for a request. Raises `StatusError` 405, `NoSuchPathError` for a method that a path lacks."""
    if method in {"GET", "HEAD"}:
        is_watch = is_true(query.get("watch", "false"))
        return "get" if at.name else "watch" if is_watch else "list"
    if not at.namespace and at.resource.namespaced:
        # Across namespaces there is only reading.
        raise errors.NoSuchPathError(at.resource.name) if at.resource.is_custom else errors.method_not_allowed()
    is_allowed = {"POST": not at.name, "PUT": at.name, "PATCH": at.name, "DELETE": not at.subresource}
    if not is_allowed.get(method):
        raise errors.method_not_allowed()
    if method == "DELETE":
        return "delete" if at.name else "deletecollection"
    return VERBS[method]


def is_true(text: str) -> bool:
    """A boolean in a query, as the server reads it: everything but 0 and false is true."""
    return text.lower() not in {"0", "false"}
