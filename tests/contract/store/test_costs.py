"""What a step costs grows with what changed, not with what is there: counted at two sizes, not timed."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import asdict
from sqlalchemy import Table, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate import claims, outcomes
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_calling, read_last_applied
from levelog_store.fold.statereads import read_requested
from levelog_store.look.levelpages import read_level_lines
from levelog_store.look.recall import read_decisions
from levelog_store.owners.upkeep import find_old
from levelog_store.tables import decisions, intents, key_versions, levels, objects, tombstones, wakeups
from rigs.leasing import SCOPE
from rigs.rowcounts import fill, numbered, work_of
from rigs.webs import receipt

FEW, MANY = 500, 5_000
LEASE = timedelta(seconds=30)
PARTITIONS = list(range(16))

LEVEL_OF_500, POD_OF_500 = "'webs/default/' || (n % 500)", "'pods/default/' || (n % 500)"


def written(**given: str) -> str:
    usual = {"key": "n", "view": "'webs/pods'", "parent": LEVEL_OF_500, "parent_uid": "'u'", "round": "n"}
    usual |= {"verb": "'apply'", "target": POD_OF_500, "api_version": "'v1'", "kind": "'Pod'", "attempts": "1"}
    usual |= {"state": "'settled'", "outcome": "'written'", "cause": "n", "result_version": "n"}
    return numbered(intents, **usual | {"is_relayed": "true", "is_folded": "true"} | given)


PLACED = {"parent": "'webs/default/' || n", "partition": "n % 16"}
OF_LEVELS, OF_ONE = written(), written(parent="'webs/default/shop'", target="'pods/default/shop-0'")
OPEN = written(key="'open-' || n", state="'pending'") + " WHERE n <= 20"
SLOW = {"verb": "'call'", "target": "'slow.effects/default/' || (n % 500)", "kind": "'slow'"}
CALLS = written(key="'call-' || n", state="'pending'", **SLOW) + " WHERE n <= 20"
WAKEUPS = numbered(wakeups, view="'webs/pods'", cause="n", generation="1", **PLACED)
LEVELS = numbered(levels, view="'webs/pods'", parent_uid="n", status="'in_sync'", round="1", cause="n", **PLACED)
OBJECTS = numbered(objects, object="'webs/default/' || n", resource="'webs'", namespace="'default'", uid="n", name="n")
TOMBSTONES = numbered(tombstones, object="'webs/default/' || n", partition="n % 16", sequence="n")
KEYS = numbered(key_versions, index="'webs/images'", key="'k' || n", version="n")
DECIDED = {"parent": LEVEL_OF_500, "status": "'in_sync'", "reads": "'[]'", "intents": "'[]'", "basis": "'{}'"}
DECISIONS = numbered(decisions, ordinal="n", view="'webs/pods'", cause="n", snapshot="1", **DECIDED)

Run = Callable[[AsyncConnection], Awaitable[Any]]


async def costs(database: Database, statements: list[str], run: Run) -> tuple[int, int]:
    """What is done with few rows and with many."""
    found: list[int] = []
    for first, last in ((1, FEW), (FEW + 1, MANY)):
        await fill(database, statements, first, last)
        async with database.transaction() as connection:
            await connection.execute(text("ANALYZE"))  # as autovacuum does
        found.append(await work_of(database, run))
    what = "rows" if database.is_shared else "hundred instructions"
    print(f"{found[0]:,} {what} with {FEW:,}, {found[1]:,} with {MANY:,}")  # -s shows the table
    return found[0], found[1]


@pytest.mark.parametrize(
    ("statements", "run"),
    [
        pytest.param(
            [OF_ONE], lambda c: read_last_applied(c, SCOPE, ["pods/default/shop-0"]), id="the last apply to a target"
        ),
        pytest.param([WAKEUPS], lambda c: read_requested(c, SCOPE, PARTITIONS), id="what others ask for"),
        pytest.param([OF_LEVELS], lambda c: read_calling(c, SCOPE, ["u"]), id="calls for deleted objects"),
        pytest.param(
            [OF_LEVELS, LEVELS + " WHERE n <= 100"], lambda c: read_level_lines(c, SCOPE), id="levels and their writes"
        ),
        pytest.param(
            [DECISIONS],
            lambda c: read_decisions(c, SCOPE, ["webs/other"] * 20_000),
            id="decisions that led to many writes",
        ),
        pytest.param([DECISIONS], lambda c: find_old(c, SCOPE, decisions, 0, after=None), id="what is not old"),
        pytest.param([DECISIONS], lambda c: read_decisions(c, SCOPE, ["webs/other/"]), id="decisions on a namespace"),
    ],
)
async def test_a_step_reads_as_much_however_much_there_is(database: Database, statements: list[str], run: Run) -> None:
    few, many = await costs(database, statements, run)
    assert many <= 2 * few + 20, (few, many)


async def claim(connection: AsyncConnection, **options: Any) -> list[claims.ClaimedIntent]:
    """Some of what is open, for which those of each namespace are looked for in turn."""
    found = await claims.claim(connection, SCOPE, "one", limit=10, lease=LEASE, **options)
    assert len(found) == 10
    return found


async def claim_writes(connection: AsyncConnection) -> None:
    found = await claim(connection, without_calls=["webs/slow"])
    assert {each.verb for each in found} == {"apply"}


async def claim_calls(connection: AsyncConnection) -> None:
    found, _ = await claims.claim_calls(connection, SCOPE, "one", {"webs/slow": 10}, lease=LEASE)
    assert {each.verb for each in found} == {"call"}


async def end(connection: AsyncConnection) -> None:
    """Half of it is done, the rest is put off."""
    found = await claim(connection)
    keys, done, left = [each.key for each in found], found[:5], found[5:]
    assert await claims.still_claimed(connection, SCOPE, "one", keys) == {*keys}
    receipts = [(receipt({"owner": "one", "round": 1, **asdict(each)}), each.claim) for each in done]
    assert len(await outcomes.store_receipts(connection, SCOPE, "one", receipts)) == len(done)
    given: dict[str, Any] = {"delay": LEASE, "error": "", "attempts": 1, "is_doubtful": False}
    later = [outcomes.Postponement(key=each.key, claim=each.claim, **given) for each in left]
    await outcomes.postpone(connection, SCOPE, "one", later)
    await outcomes.mark_relayed(connection, SCOPE, keys)


@pytest.mark.parametrize("run", [claim, claim_writes, claim_calls, end])
async def test_a_claim_and_its_end_read_as_much_however_much_was_carried_out(database: Database, run: Run) -> None:
    few, many = await costs(database, [OF_LEVELS, OPEN, CALLS], run)
    assert many <= 2 * few + 20, (few, many)


@pytest.mark.parametrize(
    ("table", "statements"),
    [
        pytest.param(tombstones, [TOMBSTONES], id="tombstones"),
        pytest.param(key_versions, [KEYS], id="key_versions"),
        pytest.param(decisions, [DECISIONS, LEVELS], id="decisions"),
        pytest.param(intents, [OF_LEVELS, LEVELS, OBJECTS.replace("webs/default", "pods/default")], id="intents"),
    ],
)
async def test_pruning_looks_at_each_row_once(database: Database, table: Table, statements: list[str]) -> None:
    async def page_by_page(connection: AsyncConnection) -> None:
        _, after = await find_old(connection, SCOPE, table, MANY * 2, after=None)
        while after is not None:
            _, after = await find_old(connection, SCOPE, table, MANY * 2, after=after)

    few, many = await costs(database, statements, page_by_page)
    assert many <= 2 * few * MANY // FEW, (few, many)


async def test_an_object_that_is_seen_again_is_updated_in_place(shared: Database) -> None:
    """Heap-only: no index has a column that each record changes."""
    await fill(shared, [OBJECTS], 1, 10)
    async with shared.transaction() as connection:
        await connection.execute(update(objects).values(sequence=objects.c.sequence + 100))
        counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'objects'"
        assert (await connection.execute(text(counts))).one() == (10, 10)
