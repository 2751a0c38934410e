"""`levelog open`: the past as a Kubernetes API that can be read and watched, and nothing else."""

import re
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import pytest

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord
from levelog_cli.wiring.pastcluster import PastCluster
from levelog_history.reach import Moment
from rigs.clusterclient import ClusterClient
from rigs.histories import Told
from rigs.lastnight import LastNight
from rigs.webs import logged, seen

PODS = "/api/v1/namespaces/default/pods"
WEBS = "/apis/example.com/v1/namespaces/default/webs"
OWN = ["shop-0", "shop-1"]


@asynccontextmanager
async def opened(night: LastNight, *arguments: object, is_log: bool = False) -> AsyncGenerator[ClusterClient]:
    """A client of the past."""
    source = [] if is_log else [night.bundle]
    with night.levelog.start("open", *source, *map(str, arguments), env=night.env if is_log else {}) as running:
        said = await running.says("http://127.0.0.1:")
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None, said
        async with ClusterClient(found[0]) as client:
            yield client
        assert await running.stops() == 0


@pytest.mark.parametrize("is_log", [False, True])
async def test_objects_are_as_they_were_at_a_moment(night: LastNight, *, is_log: bool) -> None:
    async with opened(night, "--at", night.stranger, is_log=is_log) as client:
        assert (await client.get(PODS)).names == ["migrate-orders", *OWN]
        assert (await client.get(f"{WEBS}/shop")).body["spec"] == {"image": "a", "replicas": 2}
        assert "default" in (await client.get("/api/v1/namespaces")).names
    async with opened(night, is_log=is_log) as client:
        assert (await client.get(PODS)).names == OWN
        assert (await client.get(f"{WEBS}/shop")).body["spec"]["image"] == "c"


async def test_no_write_changes_the_past(night: LastNight) -> None:
    async with opened(night, "--at", night.stranger) as client:
        before = (await client.get(PODS)).raw
        pod = (await client.get(f"{PODS}/shop-0")).body
        labels = {"metadata": {"labels": {"a": "b"}}}
        for refused in (
            await client.delete(f"{PODS}/shop-0"),
            await client.delete(PODS),
            await client.merge(f"{PODS}/shop-0", labels),
            await client.merge(f"{PODS}/shop-0/status", labels),
            await client.apply(f"{PODS}/shop-0", pod),
            await client.replace(f"{PODS}/shop-0", pod),
            await client.create(PODS, {**pod, "metadata": {"name": "new"}}),
        ):
            assert (refused.code, refused.reason) == (403, "Forbidden")
            sentence = f"this is the bundle at sequence {night.stranger}, and nobody changes the past"
            assert refused.body["message"].endswith(sentence)
        assert (await client.get(PODS)).raw == before


async def test_a_watch_shows_what_happened_next(night: LastNight) -> None:
    async with opened(night, "--at", night.stranger, "--play", "1000") as client:
        found = await client.watched(PODS, 4, resourceVersion="1")
        changes = [(each["type"], each["object"]["metadata"]["name"]) for each in found]
        assert changes == [*(("ADDED", name) for name in (*OWN, "migrate-orders")), ("DELETED", "migrate-orders")]
        images = [each["object"]["spec"]["image"] for each in await client.watched(WEBS, 3, resourceVersion="1")]
        assert images == ["a", "b", "c"]


async def test_a_moment_that_history_does_not_reach_is_refused(night: LastNight) -> None:
    refused = await night.levelog.refused("open", night.bundle, "--at", "999", status=2)
    assert "the bundle ends at sequence" in refused
    refused = await night.levelog.refused("open", night.bundle, "--at", "2000-01-01", status=2)
    assert "is before the bundle begins" in refused


async def test_a_port_that_cannot_be_had_is_refused(night: LastNight) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = await night.levelog.refused("open", night.bundle, "--port", port, status=2)
    assert f"the cluster cannot listen at 127.0.0.1:{port}" in refused
    ended = await night.levelog.ends("open", night.bundle, "--port", "70000")
    assert (ended.status, ended.stdout) == (2, "")
    assert "Invalid value for '--port'" in ended.stderr


async def test_namespaces_and_resources_that_only_the_log_knows_are_served() -> None:
    widget = ObjectKey(group="other.io", resource="widgets", namespace="team", name="a")
    node = ObjectKey(group="", resource="nodes", namespace="", name="n")
    records = logged([seen(widget, 100, "uid-a", {"size": 1}), seen(node, 200, "uid-n", {})])
    past = PastCluster(Told(records).origin, port=0, of="the test")
    assert await past.fold_up_to(_told(records), Moment(sequence=9)) is None
    async with past.sandbox as sandbox, ClusterClient(sandbox.url) as client:
        [found] = (await client.get("/apis/other.io/v1/namespaces/team/widgets")).body["items"]
        assert (found["kind"], found["metadata"]["resourceVersion"], found["spec"]) == ("Widget", "100", {"size": 1})
        assert "team" in (await client.get("/api/v1/namespaces")).names
        assert (await client.get("/api/v1/nodes/n")).version == "200"


async def _told(records: Iterable[LoggedRecord]) -> AsyncGenerator[LoggedRecord]:
    for each in records:
        yield each
