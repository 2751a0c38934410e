"""Receipts that come back through the log, folded with the batch that they are in."""

from levelog.wire.records import Outcome
from levelog_store.connect.database import Database
from levelog_store.fold.changes import Changes, FoldedReceipt
from levelog_store.fold.changewrites import write_changes
from rigs.intents import decide, intent, intents_by_key
from rigs.leasing import SCOPE


def folded(key: str, state: Outcome) -> FoldedReceipt:
    return FoldedReceipt(
        key=key,
        view="webs/pods",
        parent="webs.example.com/default/shop",
        parent_uid="u",
        partition=3,
        round=1,
        state=state,
        outcome=state,
        receipt=b'{"outcome":"written"}',
        result_uid="of the target",
        result_version=7,
        sequence=40,
    )


async def test_receipts_of_one_batch_are_noted_at_their_intents_and_final_states_stay(database: Database) -> None:
    states = ("claimed", "written", "settled", "satisfied", "failed", "superseded")
    keys = await decide(database, *(intent(f"pods/default/{state}", state=state) for state in states))
    async with database.transaction() as connection:
        await write_changes(connection, SCOPE, Changes(receipts=[folded(key, "written") for key in keys]))
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
