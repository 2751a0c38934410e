"""Reads all levels that daemons wait for, in one statement."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.levels import Standing
from levelog_store.dialects import of_pairs, run
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import levels

_drift: Final = msgspec.json.Decoder(dict[str, tuple[str, ...]])


async def read_awaited(
    connection: AsyncConnection, scope: Scope, places: Sequence[ViewParent]
) -> dict[ViewParent, tuple[str, Standing]]:
    """Uid of the parent of each level that there is, and how it stands; without its children."""
    level = levels.c
    shown = level.view, level.parent, level.parent_uid, level.status, level.reason, level.drift, level.since
    found: dict[ViewParent, tuple[str, Standing]] = {}
    for view, parent, uid, status, reason, drift, since in await run(connection, scope, of_pairs, *shown, pairs=places):
        differing = _drift.decode(drift) if drift else {}
        found[view, parent] = uid, Standing(status=status, reason=reason, drift=differing, since=since)
    return found
