"""Classes of resources with the fields that tests read of them, as users write such classes."""

from levelog import Resource, Struct


class WebSpec(Struct):
    replicas: int = 1
    image: str = "a"


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Container(Struct):
    image: str


class PodSpec(Struct):
    containers: list[Container]


class Pod(Resource, version="v1", plural="pods"):
    spec: PodSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] | None = None
