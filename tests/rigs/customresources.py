"""A custom resource with lists and maps of every kind, for tests of what a Kubernetes API does with it."""

from dataclasses import dataclass
from typing import Any

from rigs.clusterclient import Answer, ClusterClient
from rigs.waiting import until

Json = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SPEC: Json = {
    "type": "object",
    "required": ["image"],
    "properties": {
        "image": {"type": "string"},
        "replicas": {"type": "integer", "default": 1, "minimum": 0},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "note": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "arguments": {"type": "array", "items": {"type": "string"}},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "settings": {"type": "object", "additionalProperties": {"type": "string"}},
        "selector": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "x-kubernetes-map-type": "atomic",
        },
        "nested": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}},
        "bare": {"type": "object"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(group: str, plural: str, kind: str, *, scope: str = "Namespaced", **version: Any) -> Json:
    """A definition of one version, into which `version` is merged; `subresources={}` takes the status away."""
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": SPEC, "status": status}}
    described = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    described |= {"schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": plural, "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [described],
        },
    }


async def is_established(api: ClusterClient, name: str) -> bool:
    answer = await api.get(f"{DEFINITIONS}/{name}")
    conditions = answer.body.get("status", {}).get("conditions") or ()
    if not any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions):
        return False
    spec = answer.body["spec"]
    listed = await api.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
    return listed.code == 200


async def define(api: ClusterClient, manifest: Json) -> None:
    """Create a definition, unless it is there, and wait until it is served."""
    created = await api.create(DEFINITIONS, manifest)
    assert created.code in {201, 409}, created.body
    name = manifest["metadata"]["name"]
    await until(lambda: is_established(api, name), f"{name} established")


@dataclass(frozen=True)
class Webs:
    """The collection of a custom resource in the test's own namespace."""

    api: ClusterClient
    api_version: str
    path: str

    def at(self, name: str, subresource: str = "") -> str:
        return "/".join(part for part in (self.path, name, subresource) if part)

    def manifest(self, name: str, spec: Json | None = None, *, status: Json | None = None, **metadata: Any) -> Json:
        body: Json = {"apiVersion": self.api_version, "kind": "Web", "metadata": {"name": name, **metadata}}
        body |= {"spec": spec} if spec is not None else {}
        return body | ({"status": status} if status is not None else {})

    async def create(self, name: str, spec: Json | None = None, **metadata: Any) -> Answer:
        """Create one with an image unless a spec is given; it must succeed."""
        answer = await self.api.create(self.path, self.manifest(name, spec or {"image": "one"}, **metadata))
        assert answer.code == 201, answer.body
        return answer

    async def apply(self, name: str, spec: Json | None, manager: str = "one", **query: str) -> Answer:
        return await self.api.apply(self.at(name), self.manifest(name, spec), manager, **query)


async def webs_of(api: ClusterClient, namespace: str) -> Webs:
    """The Webs of a namespace; their definition is made where it is missing."""
    await define(api, definition("contract.example.com", "webs", "Web"))
    return Webs(api, "contract.example.com/v1", f"/apis/contract.example.com/v1/namespaces/{namespace}/webs")
