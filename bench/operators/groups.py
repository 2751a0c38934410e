"""The operator whose wakes are counted: each Web is a group, and its level holds the image of each of its pods."""

from collections.abc import Iterator

from levelog import Index, LabelledResource, Level, Operator, Resource, Struct

op = Operator("groups")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


class Container(Struct):
    image: str


class PodSpec(Struct):
    containers: list[Container]


class Pod(LabelledResource, version="v1", plural="pods"):
    spec: PodSpec


@op.index
def images(pod: Pod) -> Iterator[tuple[str, tuple[str, str]]]:
    if group := pod.metadata.labels.get("group"):
        yield group, (pod.metadata.name, pod.spec.containers[0].image)


@op.view
def pods(web: Web, images: Index[str, tuple[str, str]]) -> Level[dict[str, str]]:
    found = dict(images[web.metadata.name])
    return Level(desired=found, actual=found)
