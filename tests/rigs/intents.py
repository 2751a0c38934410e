"""Rows of intents as a processor decides them, for tests of what carries them out."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from sqlalchemy import insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.subjects import partition_of
from levelog_store.actuate.claims import ClaimedIntent, Claiming, insert_claimed
from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.rows import Scope
from levelog_store.tables import intents, levels
from rigs.leasing import SCOPE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_numbers = count(1)


def intent(target: str, *, verb: str = "patch_status", body: Any = None, **columns: Any) -> dict[str, Any]:
    """A pending intent for the object `target`; columns are overwritten by name."""
    number = next(_numbers)
    key = ObjectKey.parse(target)
    options = columns.pop("options", {})
    return {
        "scope": 1,
        "key": f"key-{number:06}",
        "view": "webs/pods",
        "parent": "webs.example.com/default/shop",
        "parent_uid": "uid-shop",
        "partition": partition_of(ObjectKey.parse(columns.get("parent", "webs.example.com/default/shop")), 4),
        "round": 1,
        "ordinal": 0,
        "verb": verb,
        "target": target,
        "api_version": "v1" if not key.group else f"{key.group}/v1",
        "kind": "",
        "target_uid": "",
        "target_version": 0,
        "is_watched": True,
        "body": canonical({} if body is None else body),
        "sealed": None,
        "progress": None,
        "options": canonical(options),
        "state": "pending",
        "attempts": 0,
        "claim": 0,
        "due_at": None,
        "owner": "",
        "expires_at": None,
        "error": "",
        "outcome": "",
        "cause": 1,
        "decided_at": NOON + timedelta(seconds=number),
        "receipt": None,
        "is_relayed": False,
        "is_folded": False,
        "result_uid": "",
        "result_version": 0,
        "observed_version": None,
        "observed_at": None,
        **columns,
    }


def claimed_intent(row: dict[str, Any], **columns: Any) -> ClaimedIntent:
    """The intent of a row as its first claim gives it; columns are overwritten by name."""
    values: dict[str, Any] = {**row, "attempts": 1, "claim": 1, "is_doubtful": False, **columns}
    return ClaimedIntent(**{name: values[name] for name in ClaimedIntent.__struct_fields__})


def calls(effect: str, count: int, **columns: Any) -> list[dict[str, Any]]:
    """So many calls of an effect, each for another object."""
    given: dict[str, Any] = {"verb": "call", "api_version": "effects/v1", "kind": effect, "is_watched": False} | columns
    return [intent(f"{effect}.effects/default/{number}", body=str(number), **given) for number in range(count)]


async def claim_decided(
    connection: AsyncConnection, rows: Sequence[dict[str, Any]], owner: str, lease: timedelta, scope: Scope = SCOPE
) -> set[str]:
    """Write new intents, and claim in the same statement those that can be, as a processor does; returns their keys."""
    claiming = Claiming({row["key"] for row in rows}, owner, lease, 1)
    claimed = await insert_claimed(connection, scope, rows, claiming)
    await upsert(connection, intents, [row for row in rows if row["key"] not in claimed], update=())
    return claimed


def level_of(row: dict[str, Any]) -> dict[str, Any]:
    """The row of the level that an intent is of."""
    same = {name: row[name] for name in ("scope", "view", "parent", "parent_uid", "partition", "round", "cause")}
    texts = dict.fromkeys(("reason", "inputs", "reads_digest", "decided_inputs"), "")
    return {**same, **texts, "status": "settling", "attempts": 1, "evaluations": 1}


async def decide(database: Database, *rows: dict[str, Any]) -> list[str]:
    """Insert intents, and the levels that they are of where there are none; returns their keys."""
    async with database.transaction() as connection:
        await upsert(connection, levels, [level_of(row) for row in rows], update=())
        await connection.execute(insert(intents), list(rows))
    return [row["key"] for row in rows]


async def intents_by_key(database: Database) -> dict[str, dict[str, Any]]:
    """All rows; receipts are decoded."""
    async with database.reading() as connection:
        rows = (await connection.execute(select(intents))).mappings().all()
    return {row["key"]: {**row, "receipt": json.loads(row["receipt"] or b"null")} for row in rows}


async def states(database: Database, keys: Sequence[str]) -> list[str]:
    """The state of each intent."""
    held = await intents_by_key(database)
    return [held[key]["state"] for key in keys]


LOCK_INTENTS: Final = "LOCK TABLE intents IN EXCLUSIVE MODE"
"""Before rows are changed in no order: processes lock them in theirs, by reading too; each may wait for the other."""


async def end_claims(database_url: str, pid: int) -> None:
    """Let what a process has claimed that is killed or stands still end now, instead of in half a minute."""
    past = datetime(2000, 1, 1, tzinfo=UTC)
    held = (intents.c.state == "claimed", intents.c.owner.like(f"%-{pid}-%"))
    async with await Database.open(database_url) as database, database.transaction() as connection:
        if connection.dialect.name == "postgresql":
            await connection.execute(text(LOCK_INTENTS))
        await connection.execute(update(intents).where(*held).values(expires_at=past, due_at=past))
