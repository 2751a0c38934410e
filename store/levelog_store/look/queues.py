"""Calls that no actuator has claimed, and how many of the same effect are running. Reads only."""

from collections.abc import Collection

from msgspec import Struct
from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import CALL, CLAIMED, PENDING, effect_column
from levelog_store.dialects import is_due, one_of
from levelog_store.rows import Scope
from levelog_store.tables import intents


class Queue(Struct, frozen=True, kw_only=True):
    """The calls of one effect, in all actuators.

    The tables do not say how many may run at a time. Of an effect without `max_concurrency=` an actuator claims more
    than it can run at the moment.
    """

    effect: str
    """`operator/effect`."""
    under_way: int
    """Claimed by an actuator."""
    actuators: int
    """That have claimed these."""
    waiting: int
    """That may be claimed now."""

    @property
    def text(self) -> str:
        """As it is shown behind the name of a call that waits."""
        calls, are = ("call", "is") if self.under_way == 1 else ("calls", "are")
        where = f" in {self.actuators} actuators" if self.actuators > 1 else ""
        wait = "waits" if self.waiting == 1 else "wait"
        return f"{self.under_way} such {calls} {are} under way{where}, {self.waiting} {wait}"


async def read_queues(connection: AsyncConnection, scope: Scope, keys: Collection[str]) -> dict[str, Queue]:
    """The queue of each of some intents that is a call, may be claimed now, and waits while others of it run."""
    if not keys:
        return {}
    dialect, table = connection.dialect, intents.c
    effect, is_free = effect_column(dialect, intents).label("effect"), is_due(dialect, table.due_at)
    open_calls = table.scope == scope.number, table.verb == CALL, table.state.in_((PENDING, CLAIMED))
    waiting = select(table.key, effect).where(*open_calls, one_of(dialect, table.key, keys), is_free)
    effects = {row.key: row.effect for row in await connection.execute(waiting)}
    if not effects:
        return {}
    is_claimed = and_(table.owner != "", ~is_free)
    counts = select(
        effect,
        func.count().filter(is_claimed).label("under_way"),
        func.count(table.owner.distinct()).filter(is_claimed).label("actuators"),
        func.count().filter(is_free).label("waiting"),
    )
    rows = await connection.execute(counts.where(*open_calls).group_by(effect))
    queues = {row.effect: Queue(**row) for row in rows.mappings() if row.under_way}
    return {key: queues[effect] for key, effect in effects.items() if effect in queues}
