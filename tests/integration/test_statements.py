"""What one change costs in statements and commits, with ingest, a processor and an actuator in one process."""

from datetime import timedelta
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from sqlalchemy import select

from levelog_base.wire.objects import Application
from levelog_processors import waiting
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.tables import levels
from rigs.acting import WITHOUT_RESYNC
from rigs.kinds import manifest
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.shown import Web, shown_webs
from rigs.statements import Count, RoundTrips, counting, counting_round_trips
from rigs.together import together
from rigs.waiting import until

CHANGES: Final = 8
MOST_STATEMENTS: Final = 11
MOST_COMMITS: Final = 2
"""Of the cheapest change: on a busy machine more is looked at by the clock, or told in two parts."""
MOST_ANSWERS: Final = 8, 4
"""That PostgreSQL is waited for: of statements, some of which are several, and of what begins and ends transactions."""
BESIDE: Final = ("leases", "actuator verifier", "actuator heartbeat")
"""Tasks that go on by the clock whether anything changes or not."""


LOOK: Final = select(levels.c.status, levels.c.desired)
"""By the test."""


async def test_a_change_with_one_write_costs_so_many_statements_and_commits(
    nats_server: NatsServer, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # however busy the machine is, no receipt or echo counts as late
    monkeypatch.setattr(waiting, "ECHO_WAIT", timedelta(minutes=1))
    monkeypatch.setattr(waiting, "MOMENT", timedelta(minutes=1))
    monkeypatch.setattr(Engine, "__init__", partialmethod(Engine.__init__, patience=timedelta(minutes=1)))
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, name = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("statements")
        program = Program([shown_webs("statements")])
        servers = kubeconfig, nats_server.url, database_url
        async with together(*servers, name, program, [Web], settings=WITHOUT_RESYNC) as running:

            async def is_shown(replicas: int) -> bool:
                running.check()
                async with running.database.reading() as connection:
                    rows = (await connection.execute(LOOK)).all()
                return [(row.status, msgspec.json.decode(row.desired)) for row in rows] == [("in_sync", replicas)]

            def web(replicas: int) -> dict[str, Any]:
                return manifest("Web", "a", replicas=replicas, image="a")

            sandbox.user.create(web(1))
            await until(lambda: is_shown(1), "a level in sync")
            counts: list[Count] = []
            answers: list[RoundTrips] = []
            for replicas in range(2, 2 * CHANGES + 2):
                is_by_statement = replicas % 2 == 0  # whose count lets each one be sent by itself
                count_of = counting if is_by_statement else counting_round_trips
                with count_of(but_not=(str(LOOK),), beside=BESIDE) as count:
                    sandbox.user.apply(web(replicas))
                    await until(partial(is_shown, replicas), "a level in sync with the change")
                if isinstance(count, Count):
                    counts.append(count)
                else:
                    answers.append(count)
    statements, commits = (min(getattr(each, name) for each in counts) for name in ("statements", "commits"))
    print(f"{statements} statements and {commits} commits a change")
    assert statements <= MOST_STATEMENTS
    assert commits <= MOST_COMMITS
    least = min((each.statements, each.others) for each in answers)
    print(f"{least} answers of PostgreSQL")
    assert least <= (MOST_ANSWERS if database_url.startswith("postgresql") else (0, 0))
