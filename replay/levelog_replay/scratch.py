"""A temporary database for what is decided on recorded history, and whose history that is."""

import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from levelog.wire.objects import Application, Cluster
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope
from levelog_store.tables import metadata

_LEASE: Final = timedelta(days=365)
"""Nobody else asks for the partitions."""


class Origin(Struct, frozen=True, kw_only=True):
    """Whose history it is; idempotency keys are made of it."""

    cluster: Cluster
    application: Application
    partitions: int
    stream_created: str = ""


class Scratch(Struct, frozen=True):
    """The tables of one program; made by `open_scratch`, used in one event loop."""

    database: Database
    scope: Scope
    program: Program
    epochs: Mapping[int, int]


@asynccontextmanager
async def open_scratch(program: Program, origin: Origin, url: str = "") -> AsyncGenerator[Scratch]:
    """Make the tables in a SQLite file that goes with the context, or in an empty database at `url`."""
    async with AsyncExitStack() as stack:
        if not url:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-replay-")))
            url = f"sqlite:///{folder / 'scratch.db'}"
        database = await stack.enter_async_context(await Database.open(url, is_scratch=True))
        async with database.transaction() as connection:
            await connection.run_sync(metadata.create_all, checkfirst=False)
        scope = await open_scope(
            database,
            cluster=origin.cluster,
            application=origin.application,
            partitions=origin.partitions,
            stream_created=origin.stream_created,
            fingerprint=program.fingerprint,
            code=program.handlers,
        )
        epochs = await Leases(database, scope, owner="replay", duration=_LEASE).tend()
        yield Scratch(database, scope, program, epochs)
