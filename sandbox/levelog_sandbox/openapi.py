"""As much OpenAPI as kubectl reads before it sends a manifest: that each kind can be patched under field validation.

Limits: no schemas, so `kubectl explain` has nothing to say.
"""

from typing import Any

from levelog_sandbox.resources import Registry, Resource

Json = dict[str, Any]


def _root(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def index(registry: Registry) -> Json:
    """`/openapi/v3`: where the document of each version is."""
    roots = dict.fromkeys(_root(resource) for resource in registry)
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}


def document(registry: Registry, root: str) -> Json | None:
    """`/openapi/v3/apis/GROUP/VERSION`; None when nothing of the version is served."""
    paths: Json = {}
    for resource in registry:
        if _root(resource) != root:
            continue
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        paths[f"/{root}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {},
                "x-kubernetes-group-version-kind": kind,
                "x-kubernetes-action": "patch",
            }
        }
    if not paths:
        return None
    about = {"title": "levelog sandbox", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}
