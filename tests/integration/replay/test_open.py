"""`levelog open`: the past as a Kubernetes API that can be read and watched, and nothing else."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from rigs.clusterclient import ClusterClient
from rigs.lastnight import LastNight, record_last_night

PODS = "/api/v1/namespaces/default/pods"
WEBS = "/apis/example.com/v1/namespaces/default/webs"
OWN = ["shop-0", "shop-1"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def night(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LastNight]:
    """For all tests of the file, which only read it."""
    async with record_last_night(tmp_path_factory.mktemp("lastnight")) as night:
        yield night


@asynccontextmanager
async def opened(night: LastNight, *arguments: object, is_log: bool = False) -> AsyncGenerator[ClusterClient]:
    """A client of the past."""
    source = [] if is_log else [night.bundle]
    running = night.levelog.start("open", *source, *map(str, arguments), env=night.env if is_log else {})
    try:
        said = await running.says("http://127.0.0.1:")
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None, said
        async with ClusterClient(found[0]) as client:
            yield client
        assert await running.stops() == 0
    finally:
        running.kill()


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
