"""Checks that claims which waited for their turn are still this actuator's, in one query for all of them."""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

RECHECK_SECONDS = 1.0
"""A claim that waited longer for its turn is looked up again before anything is sent."""


class ClaimChecks(Struct, eq=False):
    """The claims of one actuator that are under way, and when each was last known to be its own.

    However many wait, they are looked up once in `RECHECK_SECONDS`: an overload does not feed itself.
    """

    database: Database
    scope: Scope
    owner: str
    clock: Callable[[], float]
    known_at: dict[str, float] = {}
    looking: asyncio.Task[None] | None = None

    def begin(self, intent: ClaimedIntent, since: float) -> None:
        """Add a claim, made at a time of the clock; minus infinity if it is unknown whether it committed."""
        self.known_at[intent.key] = since

    def end(self, intent: ClaimedIntent) -> None:
        """Forget a claim."""
        self.known_at.pop(intent.key, None)

    async def is_still_ours(self, intent: ClaimedIntent, *, since: float) -> bool:
        """Tell whether the claim is this actuator's, as known a moment ago and after `since`. Raises Unavailable."""
        moment = self.clock() - RECHECK_SECONDS
        while (known_at := self.known_at.get(intent.key)) is not None:
            if known_at > since and known_at >= moment:
                return True
            if self.looking is None or self.looking.done():
                self.looking = asyncio.create_task(self._look(), name="actuator claim checks")
            await asyncio.shield(self.looking)
        return False

    async def _look(self) -> None:
        at, asked = self.clock(), dict(self.known_at)
        async with self.database.reading() as connection:
            owned = await claims.still_claimed(connection, self.scope, self.owner, list(asked))
        for key, known_at in asked.items():
            if self.known_at.get(key) != known_at:  # it has ended; a new one was not asked for
                continue
            if key in owned:
                self.known_at[key] = max(at, known_at)
            else:
                del self.known_at[key]
