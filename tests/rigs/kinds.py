"""Classes of resources, for tests to which nothing but their names and metadata matters, and manifests."""

from typing import Any

from levelog import Manifest, Resource
from rigs import customresources


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Pod(Resource, version="v1", plural="pods"):
    pass


class Secret(Resource, version="v1", plural="secrets"):
    pass


class Service(Resource, version="v1", plural="services"):
    pass


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


def manifest(kind: str, name: str, /, **spec: Any) -> Manifest:
    """Of an object of example.com/v1 in the namespace default."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, "spec": spec}


def web(name: str = "shop", /, **spec: Any) -> Manifest:
    """Of a Web."""
    return manifest("Web", name, **spec)


def definition(
    kind: str, *, group: str = "example.com", scope: str = "Namespaced", has_status: bool = True
) -> Manifest:
    """Of a custom resource of version v1 that takes anything, with a status subresource or without."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    subresources: Manifest = {"status": {}} if has_status else {}
    plural = f"{kind.lower()}s"
    return customresources.definition(group, plural, kind, scope=scope, schema=schema, subresources=subresources)
