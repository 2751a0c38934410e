"""Receipts that come back through the log, folded with the batch that they are in."""

from typing import Any

from msgspec.structs import asdict
from sqlalchemy import delete, select

from levelog.wire.objects import ObjectKey, Uid
from levelog.wire.records import ReceiptNoted
from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.fold.changes import Changes, FoldedReceipt
from levelog_store.fold.changewrites import write_changes
from levelog_store.rows import StoredObject
from levelog_store.tables import levels, objects
from rigs.intents import NOON, decide, intent, intents_by_key
from rigs.leasing import SCOPE


def folded(key: str, *, parent_uid: str = "u", number: int = 1, target: str = "pods/default/x") -> FoldedReceipt:
    record = ReceiptNoted(
        application="webs",
        key=key,
        view="webs/pods",
        parent=ObjectKey.parse("webs.example.com/default/shop"),
        parent_uid=Uid(parent_uid),
        round=number,
        verb="apply",
        target=ObjectKey.parse(target),
        outcome="written",
        target_uid="of the target",
        target_version=7,
        process="one",
        time=NOON,
    )
    return FoldedReceipt(record=record, sequence=40)


async def keep_parent(database: Database) -> None:
    """Have the parent of all the intents be there."""
    parent = StoredObject(
        object="webs.example.com/default/shop",
        partition=3,
        resource="webs.example.com",
        namespace="default",
        name="shop",
        uid="uid-shop",
        version=1,
        sequence=1,
        is_deleting=False,
        recorded_at=NOON,
        body=b"{}",
    )
    async with database.transaction() as connection:
        await upsert(connection, objects, [{"scope": SCOPE.number, **asdict(parent)}])


async def test_receipts_of_one_batch_are_noted_at_their_intents_and_final_states_stay(database: Database) -> None:
    states = ("claimed", "written", "settled", "satisfied", "failed", "superseded")
    claim: dict[str, Any] = {"owner": "one", "attempts": 1}
    keys = await decide(database, *(intent(f"pods/default/{state}", state=state, **claim) for state in states))
    await keep_parent(database)
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(receipts=[folded(key) for key in keys]))
    held = await intents_by_key(database)
    assert [held[key]["state"] for key in keys] == [
        "written",
        "written",
        "settled",
        "satisfied",
        "failed",
        "written",  # it was sent before it was superseded
    ]
    assert all(held[key]["is_folded"] and held[key]["is_relayed"] for key in keys)
    assert {held[key]["result_version"] for key in keys} == {7}


async def test_a_receipt_ends_an_intent_under_its_own_claim_only(database: Database) -> None:
    """Another actuator took the claim over when the first stood still, whose receipt comes after all."""
    own, left, _taken, _again, told = keys = await decide(
        database,
        intent("pods/default/own", state="claimed", owner="one", attempts=1),
        intent("pods/default/left", state="claimed", attempts=1),
        intent("pods/default/taken", state="claimed", owner="two", attempts=2),
        intent("pods/default/again", state="claimed", owner="one", attempts=2),
        intent("pods/default/told", state="written", owner="two", attempts=2, result_version=9),
    )
    await keep_parent(database)
    async with database.transaction() as connection:
        receipts = [folded(key) for key in keys]
        await write_changes(connection, SCOPE, Changes(receipts=receipts))
    held = await intents_by_key(database)
    assert {key for key in keys if held[key]["is_folded"]} == {own, left}
    assert [held[key]["state"] for key in keys] == ["written", "written", "claimed", "claimed", "written"]
    assert held[told]["result_version"] == 9


async def test_invariant_21_what_was_written_for_a_parent_that_is_gone_is_settled(database: Database) -> None:
    (key,) = await decide(database, intent("pods/default/a", state="claimed", owner="one", attempts=1))
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(receipts=[folded(key)]))
    assert (await intents_by_key(database))[key]["state"] == "settled"


async def test_a_receipt_makes_a_level_only_where_its_intent_is_lost(database: Database) -> None:
    """Else the level is one that the view's filters exclude, or it is woken and made by its decision."""
    (known,) = await decide(database, intent("pods/default/a", state="claimed", owner="one", attempts=1))
    await keep_parent(database)
    for key, made in ((known, []), ("of a row that is lost", [5])):
        async with database.transaction() as connection:
            await connection.execute(delete(levels))
            told = folded(key, parent_uid="uid-shop", number=5)
            await write_changes(connection, SCOPE, Changes(receipts=[told]))
            assert (await connection.execute(select(levels.c.round))).scalars().all() == made


async def test_a_receipt_of_a_claim_that_others_took_over_raises_the_round_all_the_same(database: Database) -> None:
    """What it tells of took place under its key, which no later round may use again."""
    taken = intent("pods/default/a", state="claimed", owner="two", attempts=2)
    (key,) = await decide(database, taken)
    await keep_parent(database)
    async with database.transaction() as connection:
        late = folded(key, parent_uid=taken["parent_uid"], number=5)
        await write_changes(connection, SCOPE, Changes(receipts=[late]))
    async with database.reading() as connection:
        assert (await connection.execute(select(levels.c.round))).scalars().all() == [5]
    held = (await intents_by_key(database))[key]
    assert (held["state"], held["owner"], held["is_folded"]) == ("claimed", "two", False)


async def test_a_fold_that_ends_an_intent_tells_whether_another_waits_for_its_target(database: Database) -> None:
    claim: dict[str, Any] = {"state": "claimed", "owner": "one", "attempts": 1}
    first, alone, _ = await decide(
        database, intent("pods/default/a", **claim), intent("pods/default/b", **claim), intent("pods/default/a")
    )
    for key, target, is_awaited in ((alone, "pods/default/b", False), (first, "pods/default/a", True)):
        changes = Changes(receipts=[folded(key, target=target)])
        async with database.transaction() as connection:
            await write_changes(connection, SCOPE, changes)
        assert changes.frees_targets is is_awaited
