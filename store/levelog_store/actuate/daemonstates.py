"""The state of a running daemon, kept in its intent's row while the claim is held, and levels that daemons wait for."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Dialect, Select, Update, bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.levels import LevelStatus
from levelog_store.actuate.claims import IS_KEY, IS_OF_CLAIM, IS_OWNERS, ClaimedIntent
from levelog_store.dialects import built_once, now, of_pairs, run
from levelog_store.fold.levelwrites import AS_LEFT, OF_BACKFILL
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import backfills, intents, levels

_drift: Final = msgspec.json.Decoder(dict[str, tuple[str, ...]])


async def keep_progress(
    connection: AsyncConnection, scope: Scope, owner: str, intent: ClaimedIntent, progress: bytes
) -> bool:
    """Store the state of a claimed call; False, and no change, if that claim of the owner has ended."""
    kept = await run(connection, scope, put, of_key=intent.key, by=owner, under=intent.claim, content=progress)
    return kept.rowcount == 1


@built_once
def put(dialect: Dialect) -> Update:
    """Change the progress of the row `of_key` that its owner holds under the claim, as long as that lasts."""
    is_current = intents.c.expires_at > now(dialect)
    content = bindparam("content", type_=intents.c.progress.type)
    return update(intents).where(IS_KEY, IS_OWNERS, IS_OF_CLAIM, is_current).values(progress=content)


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
