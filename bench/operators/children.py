"""Webs with a ConfigMap for each replica."""

from collections.abc import Iterator

from levelog import Manifest, Operator, Resource, Struct

op = Operator("fleet")


class Spec(Struct):
    replicas: int = 0


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


class ConfigMap(Resource, version="v1", plural="configmaps", kind="ConfigMap"):
    pass


@op.children(Web, of=ConfigMap)
def configs(web: Web) -> Iterator[Manifest]:
    """A ConfigMap for each replica."""
    for number in range(web.spec.replicas):
        metadata = {"name": f"{web.metadata.name}-{number}"}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"number": str(number)}}
