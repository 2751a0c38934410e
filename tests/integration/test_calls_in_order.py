"""Edge handlers beside a running actuator: for one object one call at a time, and none for what is gone."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest_asyncio
from sqlalchemy import select

from levelog import Operator, Resource, Struct
from levelog.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.tables import intents, wakeups
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.together import Together, together
from rigs.waiting import until


class WebSpec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


def web(name: str, replicas: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    spec = {"replicas": replicas, "image": "a"}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec}


class Provisioning:
    """An operator whose handler waits in one kind of call, until it is let go, and raises what it has to."""

    def __init__(self) -> None:
        self.waits = "update"
        self.op = op = Operator("calls")
        self.begun: list[tuple[str, str, int]] = []
        """Reason, name and replicas."""
        self.handled: list[tuple[str, str, int]] = []
        self.is_let_go = asyncio.Event()
        self.error: Exception | None = None

        @op.on.create(timeout=timedelta(minutes=5))  # however busy the machine is
        @op.on.update
        @op.on.delete
        async def provision(web: Web, reason: str) -> None:
            call = reason, web.metadata.name, web.spec.replicas
            self.begun.append(call)
            if reason == self.waits:
                await self.is_let_go.wait()
                if self.error is not None and web.spec.replicas == 2:
                    raise self.error
            self.handled.append(call)

    async def have_begun(self, *calls: tuple[str, str, int]) -> None:
        async def is_so() -> bool:
            return all(call in self.begun for call in calls)

        await until(is_so, f"{calls} in {self.begun}")

    async def are_handled(self, *calls: tuple[str, str, int]) -> None:
        async def is_so() -> bool:
            return all(call in self.handled for call in calls)

        await until(is_so, f"{calls} in {self.handled}")


class Rig:
    """The operator, and what runs it."""

    def __init__(self, sandbox: Sandbox, running: Together, provisioning: Provisioning) -> None:
        self.user = sandbox.user
        self.provisioning = provisioning
        self._running = running

    async def intents_of(self, view: str) -> list[Any]:
        self._running.check()
        query = select(intents).where(intents.c.scope == self._running.scope.number, intents.c.view == view)
        async with self._running.database.reading() as connection:
            return [*(await connection.execute(query.order_by(intents.c.decided_at, intents.c.ordinal))).mappings()]

    async def change_while_called(self) -> None:
        """A Web that is deleted while the handler is called for its change; the call for its end is decided."""
        self.user.create(web("shop"))
        await self.provisioning.are_handled(("create", "shop", 1))
        self.user.apply(web("shop", 2))
        await self.provisioning.have_begun(("update", "shop", 2))
        self.user.delete("webs.example.com", "shop")
        await self.is_asked_for("calls/provision_deleted", 2)

    async def is_asked_for(self, view: str, replicas: int) -> None:
        """Wait until a view asks for a call for an object with so many replicas."""

        async def is_decided() -> bool:
            bodies = [json.loads(row["body"]) for row in await self.intents_of(view)]
            return any(body["object"]["spec"]["replicas"] == replicas for body in bodies)

        await until(is_decided, f"a call that {view} asks for")

    async def is_put_off(self, view: str) -> None:
        """Wait until a level is to be looked at later, as what it waits for cannot be withdrawn yet."""
        query = select(wakeups.c.due_at).where(wakeups.c.view == view, wakeups.c.due_at.is_not(None))

        async def is_so() -> bool:
            self._running.check()
            async with self._running.database.reading() as connection:
                return bool((await connection.execute(query)).all())

        await until(is_so, f"a wakeup of {view} that waits")


@pytest_asyncio.fixture
async def rig(nats_server: NatsServer, database_url: str, tmp_path: Path) -> AsyncGenerator[Rig]:
    provisioning = Provisioning()
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, name = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("calls")
        program = Program([provisioning.op])
        async with together(kubeconfig, nats_server.url, database_url, name, program, [Web]) as running:
            yield Rig(sandbox, running, provisioning)


async def test_invariant_17_the_end_of_an_object_is_not_handled_while_the_call_for_its_change_runs(rig: Rig) -> None:
    provisioning = rig.provisioning
    await rig.change_while_called()
    rig.user.create(web("cart"))  # whatever could be called for the end, is by the time that this is
    await provisioning.are_handled(("create", "cart", 1))
    assert ("delete", "shop", 2) not in provisioning.begun
    provisioning.is_let_go.set()
    await provisioning.are_handled(("delete", "shop", 2))
    assert [call for call in provisioning.handled if call[1] == "shop"] == [
        ("create", "shop", 1),
        ("update", "shop", 2),
        ("delete", "shop", 2),
    ]


async def test_a_call_that_fails_after_its_object_is_gone_is_not_made_again_and_holds_up_no_other(rig: Rig) -> None:
    provisioning = rig.provisioning
    provisioning.error = ConnectionError("the cloud is away")
    await rig.change_while_called()
    provisioning.is_let_go.set()
    await provisioning.are_handled(("delete", "shop", 2))
    assert provisioning.begun.count(("update", "shop", 2)) == 1
    last = (await rig.intents_of("calls/provision"))[-1]
    assert (last["state"], last["error"]) == ("superseded", "handler provision: ConnectionError: the cloud is away")


async def test_an_object_of_the_same_name_is_handled_after_the_end_of_the_one_before(rig: Rig) -> None:
    provisioning = rig.provisioning
    provisioning.waits = "delete"
    rig.user.create(web("shop"))
    await provisioning.are_handled(("create", "shop", 1))
    rig.user.delete("webs.example.com", "shop")
    await provisioning.have_begun(("delete", "shop", 1))
    rig.user.create(web("shop", 3))
    await rig.is_asked_for("calls/provision", 3)
    rig.user.create(web("cart"))
    await provisioning.are_handled(("create", "cart", 1))
    assert ("create", "shop", 3) not in provisioning.begun
    provisioning.is_let_go.set()
    await provisioning.are_handled(("delete", "shop", 1), ("create", "shop", 3))


async def test_a_change_during_a_call_is_handled_once_the_call_has_failed(rig: Rig) -> None:
    provisioning = rig.provisioning
    provisioning.error = ConnectionError("the cloud is away")
    rig.user.create(web("shop"))
    await provisioning.are_handled(("create", "shop", 1))
    rig.user.apply(web("shop", 2))
    await provisioning.have_begun(("update", "shop", 2))
    rig.user.apply(web("shop", 3))
    await rig.is_put_off("calls/provision")
    provisioning.is_let_go.set()
    await provisioning.are_handled(("update", "shop", 3))
