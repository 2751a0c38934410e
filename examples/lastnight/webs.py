"""Webs with a bug, for docs/debugging.md: it has deleted what is not its own. `fixed.py` is the same without it."""

from collections.abc import Iterator

from levelog import PRESENT, Index, Intent, LabelledResource, Level, Manifest, Operator, Resource, Struct, apply, delete

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


class Pod(LabelledResource, version="v1", plural="pods"):
    spec: PodSpec


@op.index(labels={"app": PRESENT})
def images(pod: Pod) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name and image of each pod, by the Web that it belongs to."""
    yield pod.metadata.labels["app"], (pod.metadata.name, pod.spec.containers[0].image)


@op.view
def pods(web: Web, images: Index[str, tuple[str, str]]) -> Level[dict[str, str]]:
    """Image of each pod, by its name: as the Web wants it, and as it is."""
    wanted = {f"{web.metadata.name}-{n}": web.spec.image for n in range(web.spec.replicas)}
    return Level(desired=wanted, actual=dict(images[web.metadata.name]))


@op.reconcile(pods, writes={Pod: ["apply", "delete"]})
def converge(web: Web, level: Level[dict[str, str]]) -> Iterator[Intent]:
    """Create what is missing; delete what is too many or has another image, since a pod's image is replaced whole."""
    for name in sorted(level.drift.missing):
        yield apply(pod_manifest(web, name))
    for name in sorted(level.drift.extra | level.drift.changed):
        yield delete(Pod, name, owned=False)


def pod_manifest(web: Web, name: str) -> Manifest:
    """A pod of the Web; levelog adds the Web as its owner."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": web.metadata.name}},
        "spec": {"containers": [{"name": "web", "image": web.spec.image}]},
    }
