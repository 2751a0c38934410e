import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_actuator.claiming import ClaimLoop
from levelog_actuator.outbox import Outbox
from levelog_log.notifications import Listener
from levelog_store.connect.database import Database
from rigs.acting import WITHOUT_RESYNC, Acting
from rigs.assembled import cancel


class AskedOnce(Database):
    """A database in which something happens after what was asked first was read, before the answer is there."""

    def __init__(self, database: Database, meanwhile: Callable[[], None]) -> None:
        self.__dict__.update(vars(database))
        self._meanwhile: Callable[[], None] | None = meanwhile

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """As Database.reading."""
        async with super().reading() as connection:
            yield connection
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()


async def test_what_is_given_back_while_the_database_is_asked_is_claimed_when_it_is_due(on_sandbox: Acting) -> None:
    """The database was asked too early to say so, and the claim that follows on the notification comes too early."""
    claims, is_due = 0, asyncio.Event()

    async def claim() -> tuple[bool, float]:
        nonlocal claims
        claims += 1
        if claims == 3:
            is_due.set()
        return True, 0.0

    async def ready() -> None:
        """Claim at once."""

    def give_back() -> None:
        loop.expect(timedelta(milliseconds=50))
        loop.listener.notify()

    database = AskedOnce(on_sandbox.database, give_back)
    loop = ClaimLoop(Outbox(database, on_sandbox.scope, "me", WITHOUT_RESYNC), Listener(), ready, claim)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(30):
        await is_due.wait()
    await cancel(running)
