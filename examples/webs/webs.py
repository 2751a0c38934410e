"""Webs: an operator that keeps `spec.replicas` pods of one image for each Web.

Run it with `levelog run examples/webs/webs.py` after `kubectl apply -f examples/webs/crd.yaml`.
"""

from collections.abc import Iterator

from levelog import Index, Intent, Level, Manifest, Operator, Owner, Resource, Struct, apply, delete

op = Operator("webs")


class WebSpec(Struct):
    image: str
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Container(Struct):
    image: str


class PodSpec(Struct):
    containers: list[Container]


class Pod(Resource, version="v1", plural="pods"):
    spec: PodSpec


@op.index(labels={"app": "web"})
def images(pod: Pod) -> Iterator[tuple[Owner, tuple[str, str]]]:
    """Name and image of each pod, by the Web that owns it."""
    if owner := pod.metadata.controlled_by(Web):
        yield owner, (pod.metadata.name, pod.spec.containers[0].image)


@op.view
def pods(web: Web, images: Index[Owner, tuple[str, str]]) -> Level[dict[str, str]]:
    """Image of each pod, by its name: as the Web wants it, and as it is."""
    wanted = {f"{web.metadata.name}-{n}": web.spec.image for n in range(web.spec.replicas)}
    return Level(desired=wanted, actual=dict(images[web.as_owner]))


@op.reconcile(pods, writes={Pod: ["apply", "delete"]})
def converge(web: Web, level: Level[dict[str, str]]) -> Iterator[Intent]:
    """Create what is missing; delete what is too many or has another image, since a pod's image is replaced whole."""
    for name in sorted(level.drift.missing):
        yield apply(pod_manifest(web, name))
    for name in sorted(level.drift.extra | level.drift.changed):
        yield delete(Pod, name)


def pod_manifest(web: Web, name: str) -> Manifest:
    """A pod of the Web; levelog adds the Web as its owner."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": web.spec.image}]},
    }
