"""A processor takes up what the tables hold, which may be behind what levels were decided on."""

from datetime import timedelta

from sqlalchemy import select, update

from levelog_base.wire.objects import Application, Uid
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_base.wire.subjects import partition_of
from levelog_cli.loading import load_operators
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.dialects import now
from levelog_store.tables import intents, wakeups
from rigs.intents import NOON
from rigs.leasing import processor, scope_of
from rigs.levelog import WEBS_FILE
from rigs.webs import PODS, WEBS, deleted, lists_done, logged, pod, web

PARTITIONS = 2
SHOP = web("shop", 1, replicas=1)
OWN = partition_of(SHOP.key, PARTITIONS)
MADE = pod("shop-0", 7, owner="uid-shop")


def placed(partition: int) -> str:
    """The name of a pod in a partition."""
    return next(name for n in range(99) if partition_of(pod(name := f"shop-{n}", 1).key, PARTITIONS) == partition)


def receipt(key: str) -> ReceiptNoted:
    """Of the intent with this key, which has made the pod of the shop."""
    return ReceiptNoted(
        application=Application("webs"),
        key=key,
        view="webs/pods",
        parent=SHOP.key,
        parent_uid=SHOP.uid,
        round=1,
        verb="apply",
        target=MADE.key,
        outcome="written",
        target_uid=Uid(MADE.uid),
        target_version=MADE.version,
        process="test",
        time=NOON,
    )


def begun(*records: ObjectSeen | ObjectDeleted) -> list[LoggedRecord]:
    """A log that begins with finished lists of nothing, and goes on with records."""
    lists = [each for resource in (WEBS, PODS) for each in lists_done(resource, 0)]
    log: list[LoggedRecord] = []
    for partition in range(PARTITIONS):
        log += logged(lists, first=len(log) + 1, partition=partition)
    return log + logged(records, first=len(log) + 1, partitions=PARTITIONS)


async def test_a_receipt_counts_for_who_holds_its_partition(database_url: str) -> None:
    """All processors fold it; actuators are told once that a target may be free."""
    program = Program(load_operators([WEBS_FILE]))
    counts: dict[int, bool] = {}
    async with await Database.open(database_url) as database:
        scope = await scope_of(database, partitions=PARTITIONS, fingerprint=program.fingerprint)
        epochs = await processor(database, scope, "test").tend()
        for partition in range(PARTITIONS):
            engine = Engine(SqlTables(database, scope), program, patience=None)
            await engine.load({partition: epochs[partition]})
            counts[partition] = engine.fold(logged([receipt("any")], partition=OWN)).has_receipts
            await engine.close()
    assert counts == {OWN: True, 1 - OWN: False}


async def test_invariant_5_a_level_is_woken_that_has_seen_more_of_others_than_the_tables_have(
    database_url: str,
) -> None:
    """The other pod comes and goes within what is folded again, so that no key changes by it."""
    program = Program(load_operators([WEBS_FILE]))
    own, other = pod(placed(OWN), 3, owner="uid-shop"), pod(placed(1 - OWN), 2, owner="uid-shop")
    log = begun(SHOP, other, own, deleted(own, 4))
    async with await Database.open(database_url) as database:
        scope = await scope_of(database, partitions=PARTITIONS, fingerprint=program.fingerprint)
        epochs = await processor(database, scope, "test").tend()
        engine = Engine(SqlTables(database, scope), program, patience=None)
        await engine.load({OWN: epochs[OWN]})  # nobody folds the other partition into the tables
        for record in log:
            engine.fold([record])
        await engine.decide()
        [level] = engine.state.levels.values()
        assert (level.status, other.key.name in str(level.actual)) == ("in_sync", True)
        await engine.load(engine.epochs)
        log += logged([deleted(other, 5)], first=len(log) + 1, partitions=PARTITIONS)
        engine.fold(log)
        await engine.decide()
        [level] = engine.state.levels.values()
        assert (level.status, level.actual) == ("settling", b"{}")
        await engine.close()


async def test_invariant_5_a_level_that_waits_for_a_time_is_woken_if_its_write_was_shown_meanwhile(
    database_url: str,
) -> None:
    """Its processor has told what the receipt ended, and was killed before it decided."""
    program = Program(load_operators([WEBS_FILE]))
    log = begun(SHOP)
    async with await Database.open(database_url) as database:
        scope = await scope_of(database, partitions=PARTITIONS, fingerprint=program.fingerprint)
        epochs = await processor(database, scope, "test").tend()
        engine = Engine(SqlTables(database, scope), program, patience=None)
        await engine.load(epochs)
        engine.fold(log)
        await engine.decide()
        async with database.reading() as connection:
            key = (await connection.execute(select(intents.c.key))).scalar_one()
        log += logged([MADE], first=len(log) + 1, partitions=PARTITIONS)
        log += logged([receipt(key)], first=len(log) + 1, partition=OWN)
        engine.fold(log)
        await engine.flush()
        async with database.transaction() as connection:
            later = now(connection.dialect, timedelta(hours=1))
            await connection.execute(update(wakeups).values(due_at=later))
        await engine.load(epochs)
        engine.fold(log)
        await engine.decide()
        assert [level.status for level in engine.state.levels.values()] == ["in_sync"]
        await engine.close()
