"""Ingest is away while etcd forgets: what the levels are afterwards, compared with a run that saw everything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from levelog import Index, Level, Operator, Resource, Struct
from levelog.wire.objects import GroupResource
from levelog.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_ingest.status import WatchedResource
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_store.tables import levels, objects
from rigs.api import MERGE_PATCH
from rigs.binaries import Binaries
from rigs.controlplane import ControlPlane
from rigs.ingesting import gaps, ingesting, lists, until_watching
from rigs.logs import read_all
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until

GROUP = "example.com"
WATCHED = (
    WatchedResource(resource=GroupResource(group=GROUP, resource="webs"), version="v1", namespaces=("default",)),
    WatchedResource(resource=GroupResource(group="", resource="configmaps"), version="v1", namespaces=("default",)),
)


class WebSpec(Struct):
    wanted: str = ""


class Web(Resource, group=GROUP, version="v1", plural="webs"):
    spec: WebSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = field(default_factory=dict[str, str])


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def found(config: ConfigMap) -> Any:
        if web := config.data.get("web"):
            yield web, f"{config.metadata.uid}: {config.data.get('value')}"

    @op.view
    def shown(web: Web, found: Index[str, str]) -> Level[list[str]]:
        return Level(desired=[web.spec.wanted], actual=sorted(found[web.metadata.name]))

    return op


class Cluster:
    """Writes Webs and their ConfigMaps."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._admin = control_plane.admin
        self._paths = {
            "webs": f"/apis/{GROUP}/v1/namespaces/default/webs",
            "configmaps": "/api/v1/namespaces/default/configmaps",
        }

    async def create(self, name: str) -> None:
        web = {"apiVersion": f"{GROUP}/v1", "kind": "Web", "metadata": {"name": name}, "spec": {"wanted": "a"}}
        await self._admin.create(self._paths["webs"], web)
        data = {"metadata": {"name": name}, "data": {"web": name, "value": "a"}}
        await self._admin.create(self._paths["configmaps"], data)

    async def change(self, name: str, value: str) -> None:
        for path, body in (("webs", {"spec": {"wanted": value}}), ("configmaps", {"data": {"value": value}})):
            await self._admin.request("PATCH", f"{self._paths[path]}/{name}", body, content_type=MERGE_PATCH)

    async def delete(self, name: str) -> None:
        for path in self._paths.values():
            await self._admin.request("DELETE", f"{path}/{name}")


async def shown(run: Processing) -> dict[str, tuple[Any, ...]]:
    columns = ("parent_uid", "status", "desired", "actual", "drift")
    return {row["parent"]: tuple(row[column] for column in columns) for row in await run.rows(levels)}


async def held(run: Processing) -> set[tuple[str, str, int]]:
    names = ("kube-root-ca.crt",)
    return {(row["object"], row["uid"], row["version"]) for row in await run.rows(objects) if row["name"] not in names}


async def until_equal(one: Processing, other: Processing, last: str) -> None:
    """Wait until both runs show the last parent, and then the same."""

    async def are_equal() -> bool:
        levels_of_one = await shown(one)
        is_there = any(parent.endswith(f"/{last}") for parent in levels_of_one)
        return is_there and levels_of_one == await shown(other) and await held(one) == await held(other)

    await until(are_equal, f"the same levels, {last} among them", seconds=60)


def bodies(records: Sequence[LoggedRecord], name: str, kind: type) -> list[Any]:
    found = [record.record for record in records if isinstance(record.record, kind)]
    return [
        msgspec.json.decode(record.body)
        for record in found
        if isinstance(record, ObjectSeen | ObjectDeleted) and (record.key.resource, record.key.name) == ("webs", name)
    ]


async def test_invariant_4_levels_after_outages_over_compactions_are_those_of_an_undisturbed_run(
    control_plane_binaries: Binaries, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with ControlPlane(control_plane_binaries, watch_cache=False) as control_plane, NatsServer() as second_server:
        cluster = Cluster(control_plane)
        await control_plane.admin.create_crd(group=GROUP, plural="webs", kind="Web")
        config = control_plane.kubeconfig
        async with await connect_kube(config) as client:
            uid = await cluster_uid(client)
        async with (
            Processing(nats_server.url, f"sqlite:///{tmp_path}/one.db", [operator()], cluster=uid) as one,
            Processing(second_server.url, f"sqlite:///{tmp_path}/two.db", [operator()], cluster=uid) as other,
            ingesting(config, other.stream, *WATCHED) as undisturbed,
        ):
            await until_watching(undisturbed)
            one.start()
            other.start()
            async with ingesting(config, one.stream, *WATCHED):
                for name in ("stays", "changes", "goes", "comes-back", "goes-later"):
                    await cluster.create(name)
                await until_equal(one, other, "goes-later")
            # Away, and nothing is forgotten: no list is needed.
            await cluster.change("changes", "b")
            await cluster.delete("goes-later")
            await cluster.create("first")
            async with ingesting(config, one.stream, *WATCHED):
                await until_equal(one, other, "first")
            records = await read_all(one.stream)
            assert (lists(records), gaps(records)) == (2, [])
            [last] = bodies(records, "goes-later", ObjectDeleted)
            assert last["spec"] == {"wanted": "a"}
            # Away, and everything is forgotten, twice, the second time with changes that undo the first ones.
            await cluster.change("goes", "b")
            await cluster.delete("goes")
            await cluster.delete("comes-back")
            await cluster.create("comes-back")
            await cluster.change("changes", "c")
            await cluster.create("second")
            await control_plane.compact()
            async with ingesting(config, one.stream, *WATCHED):
                await until_equal(one, other, "second")
            await cluster.change("stays", "b")
            await cluster.change("stays", "a")
            await cluster.delete("second")
            await cluster.create("third")
            await control_plane.compact()
            async with ingesting(config, one.stream, *WATCHED):
                await until_equal(one, other, "third")
                # What is deleted under watch comes with its last body, also when it was listed.
                await cluster.delete("third")
                await cluster.create("fourth")
                await until_equal(one, other, "fourth")
            records = await read_all(one.stream)
            assert gaps(await read_all(other.stream)) == []
        assert len(gaps(records)) == 4  # two for each resource
        assert all(gap.since > 0 for gap in gaps(records))
        assert lists(records) == 6
        # The last body of what went unseen is the one that was seen last, which the sweep took away.
        assert bodies(records, "goes", ObjectDeleted) == []
        assert bodies(records, "goes", ObjectSeen)[-1]["spec"] == {"wanted": "a"}
        assert bodies(records, "third", ObjectDeleted)[-1]["spec"] == {"wanted": "a"}
