"""A level with many writes: one intent for each, few rounds, and decisions that grow as the writes do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from sqlalchemy import Text, cast, func, select

from levelog import Manifest, Operator, Resource
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.tables import decisions, intents, levels
from rigs.acting import QUICK
from rigs.kinds import manifest
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.together import Together, together
from rigs.typed import Web
from rigs.waiting import until

CHILDREN: Final = 300
BYTES: Final = ("reads", "desired", "actual", "drift", "intents", "basis")


class Config(Resource, version="v1", plural="configmaps", kind="ConfigMap"):
    pass


def fleet() -> Operator:
    op = Operator("fleet")

    @op.children(Web, of=Config)
    def configs(web: Web) -> Iterator[Manifest]:
        for number in range(web.spec.replicas):
            metadata = {"name": f"{web.metadata.name}-{number}"}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}

    return op


async def counted(running: Together) -> dict[str, Any]:
    """What the tables hold of the only level."""
    size = sum(func.coalesce(func.length(cast(decisions.c[name], Text)), 0) for name in BYTES)
    async with running.database.reading() as connection:
        states = (await connection.execute(select(intents.c.state, func.count()).group_by(intents.c.state))).all()
        made, size_bytes = (await connection.execute(select(func.count(), func.sum(size)).select_from(decisions))).one()
        found = (await connection.execute(select(levels.c.status, levels.c.round))).all()
    return {"states": dict(states), "decisions": made, "bytes": size_bytes, "levels": found}


async def test_a_parent_of_many_children_has_an_intent_for_each_and_few_decisions(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    """With an actuator that claims few of them at a time, so that most wait."""
    settings = replace(QUICK, claimed=16, requests=8, group_requests=8)
    application, program = Application("fleet"), Program([fleet()])
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
        async with together(
            kubeconfig, nats_server.url, database_url, application, program, [Web, Config], settings=settings
        ) as running:
            sandbox.user.apply(manifest("Web", "shop", image="a", replicas=CHILDREN))

            async def is_in_sync() -> bool:
                running.check()
                return [status for status, _ in (await counted(running))["levels"]] == ["in_sync"]

            await until(is_in_sync, "all children", seconds=120)
            found = await counted(running)
    assert found["states"] == {"settled": CHILDREN}
    assert found["levels"] == [("in_sync", 1)]
    assert found["decisions"] <= 16, "one each time that the writes take twice as long, and for the last few"
    assert found["bytes"] <= 2_000 * CHILDREN
