"""What the sandbox knows of core kinds, taken from a kube-apiserver.

`python -m rigs.builtinkinds`, in the folder `tests`, writes the file anew.

Only what the sandbox interprets is kept: names, scope, subresources, field types, required, declared defaults, list
types, and how a strategic merge patch treats lists. The test of the same name compares a running server with the file.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from rigs.binaries import find_binaries
from rigs.clusterclient import ClusterClient
from rigs.controlplane import ControlPlane

Json = dict[str, Any]

FILE = Path(__file__).parents[2] / "sandbox" / "levelog_sandbox" / "schemas" / "builtin.json"
SERVED = {
    "api/v1": (
        "namespaces",
        "pods",
        "configmaps",
        "secrets",
        "services",
        "serviceaccounts",
        "events",
        "nodes",
        "resourcequotas",
        "limitranges",
        "persistentvolumeclaims",
        "persistentvolumes",
        "endpoints",
    ),
    "apis/apps/v1": ("deployments", "replicasets", "statefulsets", "daemonsets"),
    "apis/batch/v1": ("jobs", "cronjobs"),
    "apis/networking.k8s.io/v1": ("networkpolicies", "ingresses"),
    "apis/rbac.authorization.k8s.io/v1": ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    "apis/policy/v1": ("poddisruptionbudgets",),
    "apis/autoscaling/v2": ("horizontalpodautoscalers",),
    "apis/storage.k8s.io/v1": ("storageclasses",),
    "apis/scheduling.k8s.io/v1": ("priorityclasses",),
    "apis/discovery.k8s.io/v1": ("endpointslices",),
    "apis/coordination.k8s.io/v1": ("leases",),
    "apis/events.k8s.io/v1": ("events",),
    "apis/apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apis/authentication.k8s.io/v1": ("selfsubjectreviews",),
    "apis/authorization.k8s.io/v1": ("selfsubjectaccessreviews",),
}
KEPT = (
    "type",
    "required",
    "format",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
)
SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


async def builtin_kinds(api: ClusterClient) -> Json:
    """The kinds that the sandbox serves, every definition that they refer to, and the server's minor version."""
    kinds: list[Json] = []
    definitions: Json = {}
    for root, plurals in SERVED.items():
        listed = (await api.get(f"/{root}")).body["resources"]
        schemas = (await api.get(f"/openapi/v3/{root}")).body["components"]["schemas"]
        names = {resource["name"] for resource in listed}
        group, _, version = root.partition("/")[2].rpartition("/")
        for resource in listed:
            if resource["name"] not in plurals:
                continue
            definition = root_definition(schemas, {"group": group, "version": version, "kind": resource["kind"]})
            kinds.append(
                {
                    "group": group,
                    "version": version,
                    "kind": resource["kind"],
                    "plural": resource["name"],
                    "singular": resource["singularName"],
                    "short_names": resource.get("shortNames", []),
                    "categories": resource.get("categories", []),
                    "namespaced": resource["namespaced"],
                    "has_status": f"{resource['name']}/status" in names,
                    "is_stored": "get" in resource["verbs"],
                    "has_scale": f"{resource['name']}/scale" in names,
                    "definition": short(definition),
                }
            )
            add_definitions(definition, schemas, definitions)
            if kinds[-1]["has_scale"]:
                add_definitions(root_definition(schemas, SCALE), schemas, definitions)
    minor = (await api.get("/version")).body["minor"]
    return {"minor": minor, "kinds": kinds, "definitions": dict(sorted(definitions.items()))}


def root_definition(schemas: Json, kind: Json) -> str:
    """The name of a kind's own schema."""
    return next(name for name, schema in schemas.items() if kind in schema.get("x-kubernetes-group-version-kind", ()))


def add_definitions(root: str, schemas: Json, definitions: Json) -> None:
    """Add a schema and all that it refers to."""
    wanted = {root}
    while wanted:
        name = wanted.pop().rsplit("/", 1)[-1]
        if short(name) not in definitions:
            definitions[short(name)] = {}
            definitions[short(name)] = compact(schemas[name], wanted)


def short(reference: str) -> str:
    """`#/components/schemas/io.k8s.api.core.v1.PodSpec` as `core.v1.PodSpec`."""
    return ".".join(reference.rsplit("/", 1)[-1].split(".")[-3:])


def compact(node: Json, wanted: set[str]) -> Json:
    """The parts of an OpenAPI schema that the sandbox interprets; adds the definitions that it refers to."""
    if "allOf" in node:
        node = {**node, **node["allOf"][0]}
    if "$ref" in node:
        wanted.add(node["$ref"])
        kept: Json = {"$ref": short(node["$ref"])}
    else:
        kept = {key: node[key] for key in KEPT if key in node}
    if node.get("default") not in (None, {}, "", 0, []):
        kept["default"] = node["default"]
    if "properties" in node:
        kept["properties"] = {name: compact(child, wanted) for name, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            kept[key] = compact(node[key], wanted)
    return kept


async def write() -> None:
    """Ask a server of the pinned version and write the file."""
    async with (
        ControlPlane(find_binaries(print)) as server,
        ClusterClient(server.url, ca_file=server.ca_file, token=server.admin_token) as api,
    ):
        kinds = await builtin_kinds(api)
    FILE.write_text(json.dumps(kinds, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(write())
