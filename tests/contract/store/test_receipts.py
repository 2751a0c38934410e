"""Receipts that come back through the log, folded with the batch that they are in."""

from typing import Any

from sqlalchemy import delete

from levelog_store.connect.database import Database
from levelog_store.dialects import read_as
from levelog_store.fold.changes import FoldedReceipt
from levelog_store.fold.ends import Ends, write_ends
from levelog_store.rows import LevelRow
from levelog_store.tables import levels
from rigs.intents import decide, intent, intents_by_key
from rigs.leasing import SCOPE
from rigs.webs import receipt


def folded(key: str) -> FoldedReceipt:
    row = {**intent("pods/default/x"), "key": key, "owner": "one", "attempts": 1}
    return FoldedReceipt(record=receipt(row, version=7), sequence=40)


async def test_receipts_of_one_batch_are_noted_at_their_intents_and_final_states_stay(database: Database) -> None:
    states = ("claimed", "written", "settled", "satisfied", "failed", "superseded")
    claim: dict[str, Any] = {"owner": "one", "attempts": 1}
    keys = await decide(database, *(intent(f"pods/default/{state}", state=state, **claim) for state in states))
    async with database.transaction() as connection:
        await write_ends(connection, SCOPE, Ends(receipts=[(folded(key), "written") for key in keys]))
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
    async with database.transaction() as connection:
        await write_ends(connection, SCOPE, Ends(receipts=[(folded(key), "written") for key in keys]))
    held = await intents_by_key(database)
    assert {key for key in keys if held[key]["is_folded"]} == {own, left}
    assert [held[key]["state"] for key in keys] == ["written", "written", "claimed", "claimed", "written"]
    assert held[told]["result_version"] == 9


async def test_a_receipt_that_is_told_with_the_end_of_its_parent_settles_its_intent(database: Database) -> None:
    """The parent was there when the receipt was folded, and is gone, or another one, since."""
    for target, uid in (("pods/default/a", ""), ("pods/default/b", "uid-next")):
        (key,) = await decide(database, intent(target, state="claimed", owner="one", attempts=1))
        ends = Ends(receipts=[(folded(key), "written")], gone={("webs/pods", "webs.example.com/default/shop"): uid})
        async with database.transaction() as connection:
            await write_ends(connection, SCOPE, ends)
        assert (await intents_by_key(database))[key]["state"] == "settled"


async def test_a_receipt_makes_a_level_only_where_its_intent_is_lost(database: Database) -> None:
    """Else the level is one that the view's filters exclude, or it is woken and made by its decision."""
    (known,) = await decide(database, intent("pods/default/a", state="claimed", owner="one", attempts=1))
    told = LevelRow(
        view="webs/pods", parent="webs.example.com/default/shop", partition=3, parent_uid="u", status="blocked", round=5
    )
    for key, made in ((known, []), ("of a row that is lost", [told])):
        async with database.transaction() as connection:
            await connection.execute(delete(levels))
            assert await write_ends(connection, SCOPE, Ends(unmade={key: told})) == made
            assert await read_as(LevelRow, connection, SCOPE, levels) == made
