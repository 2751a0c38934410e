"""The ends of writes wait for other changes, to share a pass, unless more than the end follows from such."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from levelog import Intent, Level, Operator, patch_status
from levelog_base.wire.objects import Application
from levelog_processors import waiting
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.program import Program
from levelog_processors.waiting import REST, RESYNC, Schedule
from levelog_sandbox import Sandbox
from levelog_store.fold.changes import Wake, read_causes
from levelog_store.rows import ViewParent
from levelog_store.tables import levels
from rigs.kinds import manifest
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.shown import Web, shown_webs
from rigs.together import together
from rigs.waiting import until

STEPS: Final = 6


@pytest.mark.parametrize("has_conditions", [False, True], ids=["a write for each step", "a condition"])
async def test_writes_that_lead_to_others_rest_once(
    nats_server: NatsServer, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, has_conditions: bool
) -> None:
    rests: list[timedelta] = []
    take = Schedule.take

    def noting(schedule: Schedule, wakes: Mapping[ViewParent, Wake]) -> None:
        if any(wake.is_end and not wake.is_echo for wake in wakes.values()):
            rests.append(schedule.rest)
        take(schedule, wakes)

    monkeypatch.setattr(Schedule, "take", noting)
    # however busy the machine is, the next step comes soon
    monkeypatch.setattr(waiting, "HURRY", timedelta(minutes=1))
    op = Operator("steps")

    @op.view
    def step(web: Web) -> Level[int]:
        return Level(min(web.spec.replicas, web.status.replicas + 1), web.status.replicas)

    @op.reconcile(step)
    def show(web: Web, level: Level[int]) -> Iterator[Intent]:
        yield patch_status(web, {"replicas": level.desired})

    if has_conditions:
        op.conditions(Web)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, program = sandbox.kubeconfig(tmp_path / "kubeconfig"), Program([op])
        async with together(kubeconfig, nats_server.url, database_url, Application("steps"), program, [Web]) as running:
            sandbox.user.create(_web(STEPS))

            async def is_done() -> bool:
                running.check()
                async with running.database.reading() as connection:
                    rows = (await connection.execute(levels.select().where(levels.c.view == "steps/step"))).all()
                return [(row.status, msgspec.json.decode(row.desired)) for row in rows] == [("in_sync", STEPS)]

            await until(is_done, "the last step")
    assert len(rests) >= STEPS - 1
    assert len([rest for rest in rests if rest == REST]) <= 2, "the receipt and the echo of the first"


async def test_a_change_that_comes_soon_is_decided_on_with_the_end_of_the_write_before(
    nats_server: NatsServer, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes: list[Sequence[int]] = []
    note = Schedule.note

    def noting(schedule: Schedule, batch: EvaluationBatch) -> None:
        causes.extend(read_causes(each.wake.causes).sequences for each in batch.decided)
        note(schedule, batch)

    monkeypatch.setattr(Schedule, "note", noting)
    monkeypatch.setattr(waiting, "REST", RESYNC)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, program = sandbox.kubeconfig(tmp_path / "kubeconfig"), Program([shown_webs("soon")])
        async with together(kubeconfig, nats_server.url, database_url, Application("soon"), program, [Web]) as running:
            for replicas in range(1, STEPS + 1):
                sandbox.user.apply(_web(replicas))

                async def is_shown(wanted: int = replicas) -> bool:
                    running.check()
                    return (_status(sandbox) or {}).get("replicas") == wanted

                await until(is_shown, "the status of the change")
    assert any(len(each) > 2 for each in causes), "the change, with the receipt and the echo of the write before"


def _web(replicas: int) -> dict[str, Any]:
    return manifest("Web", "a", image="a", replicas=replicas)


def _status(sandbox: Sandbox) -> dict[str, Any] | None:
    found: dict[str, Any] | None = sandbox.user.get("webs.example.com", "a").get("status")
    return found
