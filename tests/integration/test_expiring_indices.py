"""Entries of an index that expire in the time of a simulation; unit/test_expiry has the rest."""

from collections.abc import Iterator
from datetime import timedelta

from levelog import Index, Level, Operator
from rigs.kinds import Pod, Web, web
from rigs.simulated import simulated


def test_a_simulation_lets_entries_expire_when_time_passes() -> None:
    op = Operator("webs")

    @op.index(expires=timedelta(hours=1))
    def recent(pod: Pod) -> Iterator[tuple[str, str]]:
        yield pod.metadata.namespace, pod.metadata.name

    @op.view
    def activity(web: Web, recent: Index[str, str]) -> Level[list[str]]:
        return Level(desired=[], actual=sorted(recent[web.metadata.namespace]))

    spec = {"containers": [{"name": "web", "image": "nginx"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    with simulated(op, web("shop"), pod) as simulation:
        for minutes, there in ((0, ["p"]), (59, ["p"]), (1, [])):
            simulation.advance(timedelta(minutes=minutes))
            assert simulation.level("activity", "default", "shop").actual == there
