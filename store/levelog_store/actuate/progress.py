"""State of a running daemon, kept in its intent's row for as long as the claim is held."""

from sqlalchemy import Dialect, Update, bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import IS_HELD, IS_KEY, IS_OF_CLAIM, ClaimedIntent
from levelog_store.dialects import built_once, now, run
from levelog_store.rows import Scope
from levelog_store.tables import intents


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
    return update(intents).where(IS_KEY, IS_HELD, IS_OF_CLAIM, is_current).values(progress=content)
