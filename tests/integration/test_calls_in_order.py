"""Edge handlers beside a running actuator: for one object one call at a time. The machine of edges shows the rest."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from levelog import Operator
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.tables import intents
from rigs.kinds import manifest
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.together import together
from rigs.typed import Web
from rigs.waiting import until


def web(name: str, replicas: int = 1) -> dict[str, Any]:
    return manifest("Web", name, replicas=replicas, image="a")


async def test_invariant_17_the_end_of_an_object_is_not_handled_while_the_call_for_its_change_runs(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    op, is_let_go = Operator("calls"), asyncio.Event()
    begun, handled = list[tuple[str, str, int]](), list[tuple[str, str, int]]()

    @op.on.create(timeout=timedelta(minutes=5))  # however busy the machine is
    @op.on.update
    @op.on.delete
    async def provision(web: Web, reason: str) -> None:
        call = reason, web.metadata.name, web.spec.replicas
        begun.append(call)
        if reason == "update":
            await is_let_go.wait()
        handled.append(call)

    async def until_in(calls: list[tuple[str, str, int]], call: tuple[str, str, int]) -> None:
        await until(lambda: call in calls, f"{call} in {calls}")

    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, name = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("calls")
        async with together(kubeconfig, nats_server.url, database_url, name, Program([op]), [Web]) as running:
            sandbox.user.create(web("shop"))
            await until_in(handled, ("create", "shop", 1))
            sandbox.user.apply(web("shop", 2))
            await until_in(begun, ("update", "shop", 2))
            sandbox.user.delete("webs.example.com", "shop")

            async def is_asked_for() -> bool:
                running.check()
                async with running.database.reading() as connection:
                    query = select(intents.c.key).where(intents.c.view == "calls/provision_deleted")
                    return bool((await connection.execute(query)).all())

            await until(is_asked_for, "a call for the end")
            sandbox.user.create(web("cart"))  # whatever could be called for the end, is by the time that this is
            await until_in(handled, ("create", "cart", 1))
            assert ("delete", "shop", 2) not in begun
            is_let_go.set()
            await until_in(handled, ("delete", "shop", 2))
    assert [call for call in handled if call[1] == "shop"] == [
        ("create", "shop", 1),
        ("update", "shop", 2),
        ("delete", "shop", 2),
    ]
