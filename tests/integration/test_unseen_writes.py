"""Writes that the log does not show: what the API has of their targets is read, and told through the log."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from levelog import Index, Intent, Level, Operator, Owner, apply
from levelog_actuator import Actuator, ActuatorSettings
from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import TargetObserved
from levelog_ingest.status import WatchedResource
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.publisher import BatchPublisher
from levelog_store.tables import intents
from rigs.controlplane import ControlPlane
from rigs.faultproxy import FaultProxy
from rigs.ingesting import ingesting
from rigs.kinds import ConfigMap
from rigs.logs import read_all
from rigs.processing import Processing
from rigs.waiting import until

SETTINGS = ActuatorSettings(
    lease=timedelta(seconds=20),
    request=timedelta(seconds=10),
    resync=timedelta(seconds=0.5),
    look_after=timedelta(seconds=0.2),
    most_look=timedelta(seconds=0.5),
)


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def owned(config: ConfigMap) -> Iterator[tuple[Owner, str]]:
        if owner := config.metadata.controlled_by(ConfigMap):
            yield owner, config.metadata.name

    @op.view(labels={"role": "parent"})
    def child(parent: ConfigMap, owned: Index[Owner, str]) -> Level[list[str]]:
        return Level(desired=[f"{parent.metadata.name}-child"], actual=sorted(owned[parent.as_owner]))

    @op.reconcile(child, writes={ConfigMap: ["apply"]})
    def make(_parent: ConfigMap, level: Level[list[str]]) -> Iterator[Intent]:
        for name in level.desired:
            yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})

    return op


@asynccontextmanager
async def acting(run: Processing, proxy: FaultProxy, folder: Path, token: str) -> AsyncGenerator[None]:
    """An actuator of the run, behind the proxy."""
    async with await connect_kube(proxy.kubeconfig(folder / "actuator", token=token)) as client:
        actuator = Actuator(
            run.database, run.scope, client, BatchPublisher(run.stream), run.notifier, settings=SETTINGS
        )
        task = asyncio.create_task(actuator.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_invariant_8_a_target_that_went_while_nobody_watched_is_written_again_and_one_that_is_there_is_not(
    control_plane: ControlPlane, processing: partial[Processing], tmp_path: Path
) -> None:
    """Ingest is away from the first write on: the log never shows a child until it is back."""
    admin = control_plane.admin
    namespace = await admin.create_namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    watched = WatchedResource(
        resource=GroupResource(group="", resource="configmaps"), version="v1", namespaces=(namespace,)
    )
    config = control_plane.kubeconfig
    async with await connect_kube(config) as client:
        uid = await cluster_uid(client)
    async with FaultProxy(admin.url, ca_file=admin.ca_file) as proxy, processing([operator()], cluster=uid) as run:
        run.start()

        async def has_round(number: int) -> dict[str, Any] | None:
            level = await run.find_level("shop")
            return level if level is not None and level["round"] == number else None

        async def observations(number: int) -> list[TargetObserved]:
            """Those of the intent of a round."""
            keys = {row["key"] for row in await run.rows(intents) if row["round"] == number}
            found = [logged.record for logged in await read_all(run.stream)]
            return [each for each in found if isinstance(each, TargetObserved) and each.key in keys]

        async with ingesting(config, run.stream, watched):
            await admin.create(path, {"metadata": {"name": "shop", "labels": {"role": "parent"}}})
            await until(lambda: has_round(1), "the first round")
        async with acting(run, proxy, tmp_path, admin.token or "none"):
            await until(
                lambda: admin.request("GET", f"{path}/shop-child"), "the child", accept=lambda found: found[0] == 200
            )
            await admin.request("DELETE", f"{path}/shop-child")
            await until(lambda: has_round(2), "a round after the end of the child was seen")
            assert (await observations(1))[-1].target_version == 0

            async def is_told() -> str:
                level = await has_round(2)
                return level["reason"] if level is not None and "had version" in level["reason"] else ""

            reason = await until(is_told, "a level that says what the API has")
            assert "which the log does not show" in reason
            await run.folded(await run.stream.last_sequence())
            level = await has_round(2)
            assert level is not None
            assert level["status"] == "settling"
            assert len(proxy.log.effective_writes(lambda request: request.name == "shop-child")) == 2

            async with ingesting(config, run.stream, watched):

                async def is_in_sync() -> bool:
                    level = await run.find_level("shop")
                    return level is not None and level["status"] == "in_sync"

                await until(is_in_sync, "a level in sync")
        assert {row["state"] for row in await run.rows(intents)} == {"settled"}
        assert [row["round"] for row in await run.rows(intents)] == [1, 2]
        assert len(proxy.log.effective_writes(lambda request: request.name == "shop-child")) == 2
