"""Children, effects, whole indices, lookups, time, entries that expire, and what raises: recorded and decided again."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest_asyncio
from sqlalchemy import and_, exists, or_, select

from levelog_base.wire.objects import Application
from levelog_cli.loading import load_operators
from levelog_history.reach import Moment
from levelog_log.stream import open_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.decide.functions import Caller
from levelog_processors.program import Program
from levelog_replay.bundles.reading import open_bundle
from levelog_replay.bundles.writing import export
from levelog_replay.choice import Selection
from levelog_replay.comparing import DecisionComparison
from levelog_replay.historysources import History, open_history
from levelog_replay.judging import Judge
from levelog_replay.recordedinputs import RecordedReplay
from levelog_replay.tape import Rebuilt
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from levelog_store.tables import intents, levels
from rigs.depot import DEPOT_FILE, SHOPS, ConfigMap, Pod, Service, Shop, config_map, pod, shop
from rigs.inorder import decided_in_order
from rigs.kinds import definition
from rigs.levelog import define
from rigs.nats import NatsServer
from rigs.postgres import PostgresDatabases
from rigs.run.examples import short_or_whole
from rigs.together import Together, together
from rigs.waiting import until

APPLICATION = Application("depot")

_OF_LEVEL = (levels.c[name] == intents.c[name] for name in ("scope", "view", "parent", "parent_uid"))
IS_AWAITED = or_(
    intents.c.state.in_(("pending", "claimed")),
    and_(intents.c.state == "written", or_(intents.c.is_folded.is_(False), exists().where(*_OF_LEVEL))),
)
"""The intent is to be written, or a level waits to see it: one whose parent is gone waits for nothing."""


def program() -> Program:
    return Program(load_operators([DEPOT_FILE]))


class Depot:
    """A sandbox, and what runs on it."""

    def __init__(self, sandbox: Sandbox, running: Together) -> None:
        self.user = sandbox.user
        self.running = running

    async def show(self, *, reason: str = "", **wanted: str) -> None:
        """Wait until levels, as `shop_view`, have a status and a reason, and nothing is left to be written."""

        async def is_there() -> bool:
            self.running.check()
            async with self.running.database.reading() as connection:
                told = levels.c.reason.contains(reason, autoescape=True)
                columns = levels.c.view, levels.c.parent, levels.c.status
                rows = await connection.execute(select(*columns).where(told) if reason else select(*columns))
                found = {
                    f"{parent.rpartition('/')[2]}_{view.partition('/')[2]}": status for view, parent, status in rows
                }
                left = (await connection.execute(select(intents.c.key).where(IS_AWAITED).limit(1))).first()
            return left is None and all(found.get(level) == status for level, status in wanted.items())

        await until(is_there, f"levels {wanted}")


@pytest_asyncio.fixture
async def recorded(nats_server: NatsServer, postgres_url: str, tmp_path: Path) -> AsyncIterator[History]:
    """The story that two processors have decided on; what made it has ended."""
    async with Sandbox(bookmark_seconds=1) as sandbox:
        await define(sandbox, definition("Shop"))
        servers = sandbox.kubeconfig(tmp_path / "kubeconfig"), nats_server.url, postgres_url
        watched = (Shop, ConfigMap, Service, Pod)
        async with together(*servers, APPLICATION, program(), watched, owners=("one", "two")) as running:
            await happens(Depot(sandbox, running))
    async with await connect_nats(nats_server.url) as connection, await Database.open(postgres_url) as database:
        stream = await open_stream(connection, running.scope.cluster)
        yield await open_history(stream, database, running.scope)


async def happens(depot: Depot) -> None:
    user = depot.user
    user.apply(config_map("prices", a="1", b="2"))
    user.apply(shop("a", notes=["hi", "shy"]))
    await depot.show(a_told="in_sync", a_priced="in_sync", a_parts="in_sync", a_rank="in_sync", a_served="in_sync")
    user.create(pod("p"))
    await depot.show(a_busy="drifting")
    user.apply(shop("b", size=3, notes=["forbidden"], labels={"colour": ""}))
    user.apply(config_map("prices", a="7", b="2"))
    await depot.show(b_told="failed", b_labelled="failed", b_rank="in_sync", a_rank="in_sync", a_priced="in_sync")
    await depot.show(a_busy="in_sync", b_parts="in_sync", a_ripe="in_sync")
    user.apply(config_map("b", port="none"))
    await depot.show(b_served="drifting", b_parts="in_sync")
    user.apply(config_map("wrong", port="none"))
    await depot.show(
        a_served="in_sync", b_served="drifting", reason="index depot/ports leaves out configmaps/default/w"
    )
    user.delete("configmaps", "wrong")
    user.delete("services", "b")
    user.apply(shop("b", size=1, notes=["boom"], labels={"colour": "blue"}))
    await depot.show(a_served="in_sync", b_told="failed", b_labelled="drifting", b_parts="in_sync")
    await depot.show(a_register="in_sync", b_register="in_sync", b_grow="in_sync", a_rotate="in_sync")
    uid = user.get(SHOPS, "a")["metadata"]["uid"]
    user.delete(SHOPS, "a")
    await depot.show(**{f"a:{uid}_register_deleted": "in_sync", f"a:{uid}_file_deleted": "in_sync"})
    await depot.show(**{f"a:{uid}_file_writes_deleted": "in_sync", "b_file_writes": "in_sync"})
    assert user.get("configmaps", "file-a")["data"] == {"reason": "delete", "size": "1"}
    user.apply(shop("b", size=2, notes=["forbidden", "hi"], labels={}))
    await depot.show(b_labelled="in_sync", b_parts="in_sync", b_busy="in_sync", b_ripe="in_sync", b_rank="in_sync")
    await depot.show(b_conditions="in_sync", b_standing="drifting", b_across="drifting")


async def compared(history: History) -> DecisionComparison:
    comparison = DecisionComparison()
    code = program()
    judge = Judge(Rebuilt(code, history.origin), Caller(threads=4))
    try:
        async for (judged,) in RecordedReplay(history, Selection(), [judge]).run():
            comparison.take_recorded(judged)
    finally:
        await judge.close()
    return comparison


async def decided(file: Path, *, url: str = "") -> bytes:
    """Every decision of `what-if`, as JSON."""
    return await decided_in_order(program(), open_bundle(file), url)


async def with_seeds(file: Path, seeds: Sequence[str]) -> list[bytes]:
    async def once(seed: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, str(file)),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out

    return [await once(seed) for seed in seeds]


async def test_invariant_12_each_kind_of_handler_decides_again_as_it_did(
    recorded: History, postgres: PostgresDatabases, tmp_path: Path
) -> None:
    comparison = await compared(recorded)
    assert comparison.first is None, comparison.first
    assert comparison.obstacles == {}
    made = {view.partition("/")[2]: tally.same for view, tally in comparison.tallies.items()}
    assert {*made, "shops_finalizer"} == {view.partition("/")[2] for view in program().views}
    for view in ("register_deleted", "file_deleted", "file_writes_deleted"):
        assert made.pop(view) >= 2
    assert min(made.values()) >= 3, made
    file = tmp_path / "depot.jsonl"
    resources = program().watched
    await export(
        recorded,
        file,
        resources=resources,
        begins=Moment(sequence=1),
        selection=Selection(),
        chosen="",
        has_bookmarks=True,
    )
    expected = await decided(file)
    assert {each["view"] for each in msgspec.json.decode(expected)} == set(comparison.tallies)
    if not short_or_whole(False, True):
        return
    assert (await compared(open_bundle(file))).tallies == comparison.tallies
    async with postgres.database() as url:
        assert await decided(file, url=url) == expected
    assert await with_seeds(file, ("1", "77")) == [expected] * 2


if __name__ == "__main__":
    sys.stdout.buffer.write(asyncio.run(decided(Path(sys.argv[1]))))
