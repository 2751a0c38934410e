import secrets
from typing import Any

import pytest

from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import HistoryReverted, ObjectSeen
from levelog_ingest.status import WatchedResource
from levelog_log.transport.connection import connect
from rigs.binaries import Binaries
from rigs.controlplane import ControlPlane
from rigs.ingesting import gaps, ingesting, lists, log_of, state_of, until_recorded, until_watching
from rigs.nats import NatsServer


async def new_resource(control_plane: ControlPlane) -> WatchedResource:
    group = f"g{secrets.token_hex(4)}.example.com"
    await control_plane.admin.create_crd("Web", group=group)
    return WatchedResource(resource=GroupResource(group=group, resource="webs"), version="v1")


class Webs:
    """Writes Webs to an API server."""

    def __init__(self, control_plane: ControlPlane, watched: WatchedResource) -> None:
        self._admin = control_plane.admin
        self._group = watched.resource.group
        self._path = f"/apis/{self._group}/v1/namespaces/default/webs"

    async def create(self, name: str, **spec: Any) -> None:
        manifest = {"apiVersion": f"{self._group}/v1", "kind": "Web", "metadata": {"name": name}, "spec": spec}
        await self._admin.create(self._path, manifest)

    async def patch(self, name: str, **spec: Any) -> None:
        await self._admin.request(
            "PATCH", f"{self._path}/{name}", {"spec": spec}, content_type="application/merge-patch+json"
        )

    async def delete(self, name: str) -> None:
        await self._admin.request("DELETE", f"{self._path}/{name}")


@pytest.mark.long  # starts another etcd and another kube-apiserver; the machine of two ingesters restores theirs often
async def test_an_etcd_that_was_restored_is_noticed_and_the_log_says_what_is_there_now(
    control_plane: ControlPlane, nats_server: NatsServer
) -> None:
    watched = await new_resource(control_plane)
    webs = Webs(control_plane, watched)
    for name in ("kept", "changed", "lost"):
        await webs.create(name, n=1)
    stream = await log_of(control_plane.kubeconfig, await connect(nats_server.url))
    async with stream.connection, ingesting(control_plane.kubeconfig, stream, watched) as ingest:
        await until_watching(ingest)
        snapshot = await control_plane.snapshot()
        await webs.delete("lost")
        for number in range(20):
            await webs.patch("changed", n=number)
            await webs.create(f"new-{number}", n=number)
        await until_recorded(stream, lambda records: state_of(records).keys() >= {"kept", "changed", "new-19"})
        await control_plane.restore(snapshot)
        records = await until_recorded(stream, lambda records: lists(records) == 2)
        assert {name: body["spec"]["n"] for name, body in state_of(records).items()} == dict.fromkeys(
            ("kept", "changed", "lost"), 1
        )
        [told] = [r.record for r in records if isinstance(r.record, HistoryReverted) and r.partition == 0]
        assert told.version < told.since
        await webs.patch("changed", n=7)
        await until_recorded(stream, lambda records: state_of(records)["changed"]["spec"]["n"] == 7)


async def test_a_streamed_list_a_watch_and_a_restart(control_plane: ControlPlane, nats_server: NatsServer) -> None:
    watched = await new_resource(control_plane)
    webs = Webs(control_plane, watched)
    for number in range(20):
        await webs.create(f"w-{number}", n=number)
    stream = await log_of(control_plane.kubeconfig, await connect(nats_server.url))
    async with stream.connection:
        async with ingesting(control_plane.kubeconfig, stream, watched) as ingest:
            await until_watching(ingest)
            await webs.patch("w-1", n=100)
            await until_recorded(stream, lambda records: state_of(records).get("w-1", {}).get("spec") == {"n": 100})
        await webs.delete("w-2")
        await webs.create("new", n=1)
        async with ingesting(control_plane.kubeconfig, stream, watched):
            records = await until_recorded(stream, lambda records: "new" in state_of(records))
    assert lists(records) == 1
    state = state_of(records)
    assert len(state) == 20
    assert "w-2" not in state
    assert state["w-1"]["kind"] == "Web"
    assert "managedFields" not in state["w-1"]["metadata"]
    origins = {record.record.origin for record in records if isinstance(record.record, ObjectSeen)}
    assert origins == {"list", "watch"}


async def test_expired_history_is_told_and_swept(control_plane: ControlPlane, nats_server: NatsServer) -> None:
    watched = await new_resource(control_plane)
    webs = Webs(control_plane, watched)
    for name in ("stays", "goes"):
        await webs.create(name)
    stream = await log_of(control_plane.kubeconfig, await connect(nats_server.url))
    async with stream.connection:
        async with ingesting(control_plane.kubeconfig, stream, watched):
            await until_recorded(stream, lists)
        await webs.delete("goes")
        await webs.create("comes")
        await control_plane.expire_history()
        async with ingesting(control_plane.kubeconfig, stream, watched):
            records = await until_recorded(stream, lambda records: lists(records) == 2)
    assert len(gaps(records)) == 1
    assert state_of(records).keys() == {"stays", "comes"}


@pytest.mark.long
async def test_a_server_that_is_restarted_is_followed_again(
    control_plane: ControlPlane, nats_server: NatsServer
) -> None:
    watched = await new_resource(control_plane)
    webs = Webs(control_plane, watched)
    stream = await log_of(control_plane.kubeconfig, await connect(nats_server.url))
    async with stream.connection, ingesting(control_plane.kubeconfig, stream, watched) as ingest:
        await until_watching(ingest)
        await webs.create("before")
        await until_recorded(stream, lambda records: "before" in state_of(records))
        await control_plane.restart()
        await webs.create("after")
        await webs.delete("before")
        records = await until_recorded(stream, lambda records: state_of(records).keys() == {"after"})
    # A restarted server may not know the version that was seen last; then it is listed, and the gap told.
    assert lists(records) == 1 + len(gaps(records))


@pytest.mark.long
async def test_a_server_without_streaming_lists_is_listed_in_pages(
    control_plane_binaries: Binaries, nats_server: NatsServer
) -> None:
    async with ControlPlane(control_plane_binaries, watch_cache=False) as control_plane:
        maps = WatchedResource(resource=GroupResource(group="", resource="configmaps"), version="v1")
        path = "/api/v1/namespaces/default/configmaps"
        for number in range(510):  # more than a page
            await control_plane.admin.create(path, {"metadata": {"name": f"c-{number}"}, "data": {"n": str(number)}})
        stream = await log_of(control_plane.kubeconfig, await connect(nats_server.url))
        async with stream.connection, ingesting(control_plane.kubeconfig, stream, maps) as ingest:
            await until_watching(ingest)
            await control_plane.admin.create(path, {"metadata": {"name": "late"}})
            records = await until_recorded(stream, lambda records: "late" in state_of(records))
            assert ingest.snapshot()[0].objects >= 510
    state = state_of(records)
    assert {f"c-{number}" for number in range(510)} <= state.keys()
    # Items of a list have no kind of their own: it is put in, so that every record says what it is.
    assert {(body["kind"], body["apiVersion"]) for body in state.values()} == {("ConfigMap", "v1")}
    assert lists(records) == 1
