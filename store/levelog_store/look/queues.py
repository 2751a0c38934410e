"""Calls that no actuator has claimed, and how many of the same effect are running. Reads only."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Dialect, Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import CALL, CLAIMED, IS_IN_SCOPE, PENDING, effect_column, is_one_of_keys
from levelog_store.dialects import built_once, now, run
from levelog_store.rows import Scope
from levelog_store.tables import intents

_IS_OPEN_CALL: Final = and_(IS_IN_SCOPE, intents.c.verb == CALL, intents.c.state.in_((PENDING, CLAIMED)))


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
    effects = {row.key: row.effect for row in await run(connection, scope, _waiting, of_keys=keys)}
    if not effects:
        return {}
    rows = await run(connection, scope, _counts)
    queues = {row.effect: Queue(**row) for row in rows.mappings() if row.under_way}
    return {key: queues[effect] for key, effect in effects.items() if effect in queues}


@built_once
def _waiting(dialect: Dialect) -> Select[str, str]:
    """The rows `of_keys` that are calls which may be claimed now."""
    effect = effect_column(dialect, intents).label("effect")
    return select(intents.c.key, effect).where(is_one_of_keys(dialect), _IS_OPEN_CALL, may_be_claimed(dialect))


@built_once
def _counts(dialect: Dialect) -> Select[str, int, int, int]:
    """How many calls of each effect are claimed, by how many, and how many may be claimed now."""
    effect = effect_column(dialect, intents).label("effect")
    is_free = may_be_claimed(dialect)
    is_claimed = and_(intents.c.owner != "", ~is_free)
    return (
        select(
            effect,
            func.count().filter(is_claimed).label("under_way"),
            func.count(intents.c.owner.distinct()).filter(is_claimed).label("actuators"),
            func.count().filter(is_free).label("waiting"),
        )
        .where(_IS_OPEN_CALL)
        .group_by(effect)
    )


def may_be_claimed(dialect: Dialect) -> ColumnElement[bool]:
    """Condition that nobody holds a claim of an intent that is open."""
    return or_(intents.c.due_at.is_(None), intents.c.due_at <= now(dialect))
