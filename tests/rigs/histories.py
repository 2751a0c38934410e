"""Histories of some Webs: seen, deleted, made anew, unreadable, between lists that leave some out."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Resource, Struct
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import LoggedRecord, ObjectUnreadable
from levelog_base.wire.subjects import partition_of
from levelog_store.rows import Origin
from rigs.webs import NOON, WEBS, deleted, lists_done, logged, web

PARTITIONS = 2
Changes: TypeAlias = Sequence[tuple[str, str, int, str, int]]
"""What happens, to which Web, by how much the version grows, and the image and replicas from then on."""


class Spec(Struct):
    image: str
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


def images(web: Web) -> Iterator[tuple[str, int]]:
    """Raises for some images."""
    if web.spec.image == "bad":
        raise ValueError("bad")
    yield web.spec.image, web.spec.replicas


class Told:
    """A history of some records."""

    def __init__(self, records: Sequence[LoggedRecord]) -> None:
        self._records = records
        self.first = 1
        self.last = len(records)
        self.origin = Origin(cluster=Cluster("cluster"), application=Application("webs"), partitions=PARTITIONS)
        self.reads = 0
        self.ended = 0
        """How many of these have come to their end, or were closed."""

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        self.reads += 1
        try:
            for each in self._records:
                yield each
        finally:
            self.ended += 1


def told(changes: Changes) -> list[LoggedRecord]:
    """The records that changes of some Webs make, between lists, at versions that grow or repeat."""
    records: list[LoggedRecord] = []
    version, incarnation = 10, 1
    for number, (what, name, step, image, replicas) in enumerate(changes):
        version = max(1, version + step)
        if what == "recreated":
            incarnation += 1
        known = web(name, version, image=image, replicas=replicas, uid=f"{name}-{incarnation}")
        said: list[Any] = [known]
        if what == "deleted":
            said = [deleted(known, version)]
        elif what == "garbled":
            said = [replace(known, body=b"{")]
        elif what == "unreadable":
            said = [ObjectUnreadable(resource=WEBS, key=known.key, error="no JSON", time=NOON)]
        elif what == "listed":
            begun, ended = (replace(mark, sync_id=str(number)) for mark in lists_done(WEBS, version))
            marks = [(mark, partition) for mark in (begun, ended) for partition in range(PARTITIONS)]
            for mark, partition in marks:
                records += logged([mark], first=len(records) + 1, partitions=PARTITIONS, partition=partition)
            continue
        place = partition_of(known.key, PARTITIONS)
        records += logged(said, first=len(records) + 1, partitions=PARTITIONS, partition=place)
    return records


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["seen"] * 8 + ["deleted", "recreated", "garbled", "unreadable", "listed"]),
        st.sampled_from(["shop", "blog"]),
        st.sampled_from([1, 1, 1, 2, 0, -1]),
        st.sampled_from(["a", "b", "bad"]),
        st.integers(1, 2),
    ),
    min_size=2,
    max_size=25,
)
