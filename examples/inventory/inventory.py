"""Inventory: which images run where, to be read by SQL. It writes nothing.

Shows that an index is a table: `select * from images`. The view `unpinned` is a question asked of each namespace; that
nothing reconciles it means that its drift is a report.

Run it with `levelog run examples/inventory/inventory.py`; ../README.md has queries and what they print.
"""

from collections.abc import Iterator

from levelog import Index, Level, Operator, Resource, Struct

op = Operator("inventory")


class Container(Struct):
    name: str
    image: str


class PodSpec(Struct):
    containers: list[Container]
    init_containers: list[Container] = []

    @property
    def all_containers(self) -> Iterator[Container]:
        yield from self.init_containers
        yield from self.containers


class Pod(Resource, version="v1", plural="pods"):
    spec: PodSpec


class Namespace(Resource, version="v1", plural="namespaces", scope="Cluster"):
    """Only its name is read."""


class Use(Struct):
    """One container that uses an image; its fields are columns."""

    container: str
    is_pinned: bool


@op.index
def images(pod: Pod) -> Iterator[tuple[str, Use]]:
    """Containers, by the image that they use."""
    for container in pod.spec.all_containers:
        yield container.image, Use(container=container.name, is_pinned=is_pinned(container.image))


@op.index
def unpinned_images(pod: Pod) -> Iterator[tuple[str, str]]:
    """Images without a digest, by namespace."""
    for container in pod.spec.all_containers:
        if not is_pinned(container.image):
            yield pod.metadata.namespace, container.image


@op.view
def unpinned(namespace: Namespace, unpinned_images: Index[str, str]) -> Level[set[str]]:
    """Images of a namespace that have no digest; there should be none."""
    return Level(desired=set(), actual=set(unpinned_images[namespace.metadata.name]))


def is_pinned(image: str) -> bool:
    """Tell whether an image is named by its digest."""
    return "@sha256:" in image
