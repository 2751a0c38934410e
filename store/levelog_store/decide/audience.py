"""Who looks up a level is told that it stands otherwise: the key's version is drawn anew, and its readers are woken."""

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.fold.changes import Wake, merge_wake
from levelog_store.fold.changewrites import read_dependants, write_key_versions
from levelog_store.fold.levelwrites import new_generation, write_wakes
from levelog_store.rows import IndexKey, Scope, ViewParent


async def tell_readers(connection: AsyncConnection, scope: Scope, told: Mapping[IndexKey, tuple[int, ...]]) -> None:
    """Wake the levels that read the keys, each with the records that led there.

    No record tells of a level, so versions are drawn: one that was read never comes back. They are raised first, and
    readers are looked up in a statement of its own, as by a fold, so that no wake is lost.
    """
    if not told:
        return
    drawn = new_generation()
    await write_key_versions(connection, scope, dict.fromkeys(told, drawn))
    wakes: dict[ViewParent, Wake] = {}
    for view, parent, partition, index, key in await read_dependants(connection, scope, sorted(told)):
        merge_wake(wakes, (view, parent), Wake(partition, told[index, key]))
    await write_wakes(connection, scope, wakes)
