"""What a call that lasts has come to: kept in the row of its intent, under its claim."""

from sqlalchemy import Dialect, Update, bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import IS_HELD, IS_KEY
from levelog_store.dialects import built_once, now
from levelog_store.rows import Scope
from levelog_store.tables import intents


async def keep_progress(connection: AsyncConnection, scope: Scope, owner: str, key: str, progress: bytes) -> bool:
    """Keep what a claimed call has come to; False, and nothing is changed, if the owner's claim has ended."""
    values = {"of_scope": scope.number, "of_key": key, "by": owner, "content": progress}
    return (await connection.execute(put(connection.dialect), values)).rowcount == 1


@built_once
def put(dialect: Dialect) -> Update:
    """Change the progress of the row `of_key` that its owner holds, as long as the claim lasts."""
    is_current = intents.c.expires_at > now(dialect)
    content = bindparam("content", type_=intents.c.progress.type)
    return update(intents).where(IS_KEY, IS_HELD, is_current).values(progress=content)
