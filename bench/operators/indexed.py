"""The operator whose start is measured: one index over all Webs, and a view of each that reads nothing of it."""

from collections.abc import Iterator

from levelog import Level, Operator, Resource, Struct

op = Operator("indexed")


class Spec(Struct):
    image: str


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


@op.index
def images(web: Web) -> Iterator[tuple[str, str]]:
    yield web.spec.image, web.metadata.name


@op.view
def seen(web: Web) -> Level[str]:  # decided only once the index is filled
    return Level(desired=web.spec.image, actual=web.spec.image)
