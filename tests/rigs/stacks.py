"""An operator with children of three kinds, its parent's definition, and manifests of parents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from levelog import Manifest, Operator, Resource, Struct

STACKS_FILE: Final = Path(__file__)


class ShopSpec(Struct):
    replicas: int = 1
    cpu: str = "100m"
    parts: tuple[str, ...] = ("config", "service", "deployment")
    paused: bool = False


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Service(Resource, version="v1", plural="services"):
    pass


class Deployment(Resource, group="apps", version="v1", plural="deployments"):
    pass


op = Operator("shop")


@op.children(Shop, of=[ConfigMap, Service, Deployment])
def stack(shop: Shop) -> Iterator[Manifest]:
    """A Deployment with its configuration and its Service."""
    name = shop.metadata.name
    if "deployment" in shop.spec.parts:
        yield deployment(shop)
    if "service" in shop.spec.parts:
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]},
        }
    if "config" in shop.spec.parts:
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"greeting": "hello"}}


def deployment(shop: Shop) -> Manifest:
    name = shop.metadata.name
    container = {
        "name": "web",
        "image": "nginx",
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": shop.spec.cpu}},
    }
    spec: dict[str, Any] = {
        "replicas": shop.spec.replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    }
    if shop.spec.paused:
        spec["paused"] = True
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def shop(name: str = "shop", **spec: Any) -> Manifest:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, **spec},
    }
