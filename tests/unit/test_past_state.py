"""Lists of objects in an expression on the past: kept up record by record, they are the same as if made anew."""

from typing import Any

from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import ObjectDeleted, ObjectSeen
from levelog_processors.program import Program
from levelog_replay.tape import Rebuilt
from levelog_replay.travel.expressions import PastState
from levelog_store.rows import Origin
from rigs.webs import PODS, deleted, lists_done, logged, pod, web

ORIGIN = Origin(cluster=Cluster("c"), application=Application("webs"), partitions=4)
ASKED = ("pods", "pods/default", "pods/other", "webs.example.com", "pods/default/a")


def listed(past: PastState) -> dict[str, Any]:
    return {name: sorted((o.metadata.name, o.metadata.resourceVersion) for o in past.objects(name)) for name in ASKED}


def test_a_list_that_follows_the_records_is_as_one_made_anew() -> None:
    told: list[ObjectSeen | ObjectDeleted] = [
        *(pod(name, version) for version, name in enumerate("abcd", start=1)),
        web("shop", 5),
        pod("a", 6, image="b"),
        deleted(pod("b", 3), 7),
        pod("c", 2),  # older than what is known
        pod("b", 8, uid="uid-again"),
    ]
    records = logged(told)
    for partition in range(4):
        records += logged(lists_done(PODS, 9), first=len(records) + 1, partition=partition)
    records += logged([pod("e", 10)], first=len(records) + 1)
    rebuilt = Rebuilt(Program(()), ORIGIN)
    past = PastState(rebuilt.state, {}, set())
    counts = [len(listed(past)["pods"])]
    for each in records:
        rebuilt.fold([each])
        past.follow(each)
        found = listed(past)
        assert found == listed(PastState(rebuilt.state, {}, set())), each
        counts.append(len(found["pods"]))
    assert counts[:10] == [0, 1, 2, 3, 4, 4, 4, 3, 3, 4]
    assert counts[-2:] == [0, 1], "a complete list without them swept the pods"
