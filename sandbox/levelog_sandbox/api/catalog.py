"""Discovery: versions, groups, resources, and as much OpenAPI as kubectl reads.

Limits: OpenAPI has no schemas, so `kubectl explain` has nothing to say.
"""

from typing import Any, Final

from levelog_sandbox.schemas.registry import Registry, ServedResource

Json = dict[str, Any]

SUBRESOURCE_VERBS: Final = ("get", "patch", "update")
SCALE: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
VERSION: Final[Json] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+levelog-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "python",
}


def _groups(registry: Registry) -> dict[str, list[str]]:
    """Served versions by group, without the legacy one."""
    groups: dict[str, list[str]] = {}
    for resource in (*registry, *registry.reviews.values()):
        if resource.group and resource.version not in groups.setdefault(resource.group, []):
            groups[resource.group].append(resource.version)
    return groups


def _group(name: str, versions: list[str]) -> Json:
    offered = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": offered, "preferredVersion": offered[0]}


def core_versions(address: str) -> Json:
    """`/api`."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(registry: Registry) -> Json:
    """`/apis`."""
    groups = [_group(name, versions) for name, versions in _groups(registry).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Json | None:
    """`/apis/GROUP`; None when nothing of the group is served."""
    versions = _groups(registry).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def resource_list(registry: Registry, group_name: str, version: str) -> Json | None:
    """`/api/v1` and `/apis/GROUP/VERSION`; None when nothing of the version is served."""
    resources: list[Json] = []
    for resource in (*registry.reviews.values(), *registry):
        if (resource.group, resource.version) != (group_name, version):
            continue
        about = {"singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind}
        resources.append({"name": resource.plural, **about, "verbs": resource.verbs, **_nicknames(resource)})
        if resource.scale:
            scale = {"singularName": "", "namespaced": resource.namespaced, **SCALE, "verbs": SUBRESOURCE_VERBS}
            resources.append({"name": f"{resource.plural}/scale", **scale})
        if resource.has_status:
            status = {**about, "singularName": ""}
            resources.append({"name": f"{resource.plural}/status", **status, "verbs": SUBRESOURCE_VERBS})
    if not resources:
        return None
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _nicknames(resource: ServedResource) -> Json:
    names = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: value for key, value in names.items() if value}


def _root(resource: ServedResource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def index(registry: Registry) -> Json:
    """`/openapi/v3`: where the document of each version is."""
    roots = dict.fromkeys(_root(resource) for resource in registry)
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}


_ROOT: Final[Json] = {
    "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
    "kind": {"type": "string", "description": "Kind of this object."},
    "metadata": {"type": "object", "description": "Standard object's metadata."},
}


def document(registry: Registry, root: str) -> Json | None:
    """`/openapi/v3/apis/GROUP/VERSION`; None when nothing of the version is served.

    Of core kinds it has no schemas.
    """
    paths: Json = {}
    schemas: Json = {}
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
        if resource.published is not None:
            group = ".".join(reversed(resource.group.split(".")))
            schemas[f"{group}.{resource.version}.{resource.kind}"] = {
                **resource.published,
                "properties": {**_ROOT, **resource.published.get("properties", {})},
                "x-kubernetes-group-version-kind": [kind],
            }
    if not paths:
        return None
    about = {"title": "levelog sandbox", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": schemas}}
