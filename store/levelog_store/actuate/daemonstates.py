"""The state of a running daemon, kept in its intent's row while the claim is held, and levels that daemons wait for."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Dialect, Select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.levels import LevelStatus
from levelog_store.actuate.claims import CLAIMED, ClaimedIntent
from levelog_store.dialects import built_once, change, now, of_pairs, run
from levelog_store.fold.levelwrites import AS_LEFT, OF_BACKFILL
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import backfills, intents, levels

_drift: Final = msgspec.json.Decoder(dict[str, tuple[str, ...]])


async def keep_progress(
    connection: AsyncConnection, scope: Scope, owner: str, intent: ClaimedIntent, progress: bytes
) -> bool:
    """Store the state of a claimed call; False, and no change, if that claim of the owner has ended."""
    table = intents.c
    is_held = table.state == CLAIMED, table.owner == owner, table.claim == intent.claim
    lasts = table.expires_at > now(connection.dialect)
    return await change(connection, scope, intents, table.key == intent.key, *is_held, lasts, progress=progress) == 1


async def read_awaited(
    connection: AsyncConnection, scope: Scope, places: Sequence[ViewParent]
) -> dict[ViewParent, tuple[str, LevelStatus]]:
    """Uid of the parent of each level that there is, and how it stands; without its children."""
    found: dict[ViewParent, tuple[str, LevelStatus]] = {}
    for view, parent, uid, status, reason, drift, since in await run(connection, scope, _awaited, pairs=places):
        differing = _drift.decode(drift) if drift else {}
        found[view, parent] = uid, LevelStatus(status=status, reason=reason, drift=differing, since=since)
    return found


@built_once
def _awaited(dialect: Dialect) -> Select[Any]:
    shown = (AS_LEFT[name] for name in ("parent_uid", "status", "reason", "drift", "since"))
    return of_pairs(dialect, levels.c.view, levels.c.parent, *shown).outerjoin(backfills, OF_BACKFILL)
