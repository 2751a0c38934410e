"""Reads all levels that daemons wait for, in one statement."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Dialect, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.levels import Standing
from levelog_store.dialects import among, built_once, many_pairs
from levelog_store.rows import Scope, ViewParent
from levelog_store.tables import levels

_drift: Final = msgspec.json.Decoder(dict[str, tuple[str, ...]])


async def read_awaited(
    connection: AsyncConnection, scope: Scope, places: Sequence[ViewParent]
) -> dict[ViewParent, tuple[str, Standing]]:
    """Uid of the parent of each level that there is, and how it stands; without its children."""
    dialect = connection.dialect
    rows = await connection.execute(_awaited(dialect), {"of_scope": scope.number, **many_pairs(dialect, places)})
    return {
        (view, parent): (
            uid,
            Standing(status=status, reason=reason, drift=_drift.decode(drift) if drift else {}, since=since),
        )
        for view, parent, uid, status, reason, drift, since in rows
    }


@built_once
def _awaited(dialect: Dialect) -> Select[str, str, str, str, str, bytes | None, datetime | None]:
    table = levels.c
    source, is_there = among(dialect, (table.view, table.parent))
    columns = (table.view, table.parent, table.parent_uid, table.status, table.reason, table.drift, table.since)
    return select(*columns).select_from(source).where(is_there)
