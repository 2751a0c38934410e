"""What `what-if` decides on a history, in memory; and what the tables of a database would hold of it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
from msgspec.structs import asdict, replace

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical
from levelog_history.records import Recording
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_replay.inorder import LogReplay
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import WithWrites
from levelog_store.fold.statereads import StoredState
from levelog_store.look.recall import read_called
from levelog_store.owners.leases import Leases
from levelog_store.rows import Scope
from levelog_store.tables import metadata
from rigs.leasing import scope_of

LEASE = timedelta(days=1)


async def decided_in_order(
    program: Program,
    recording: Recording,
    url: str = "",
    *,
    redactor: Redactor | None = None,
    claimant: Claimant | None = None,
) -> bytes:
    """Every decision with its writes, as JSON; with a `url`, the engine decides as live, in an empty database."""
    redactor = redactor or Redactor()
    async with AsyncExitStack() as stack:
        replay = LogReplay(recording, program, redactor=redactor, claimant=claimant)
        stack.push_async_callback(replay.close)
        if not url:
            return _shown([each async for each in replay.decisions()])
        database = await stack.enter_async_context(await Database.open(url, is_scratch=True))
        scope = await made_scope(database, program, recording)
        tables = _Leased(database, scope, hold_state=False)
        tables.leases = await Leases(database, scope, owner="replay", duration=LEASE).tend()
        engine = Engine(tables, program, patience=None, redactor=redactor, claimant=claimant)
        setattr(replay, "_engine", engine)  # noqa: B010 - what else it does is the same
        async for _ in replay.run():
            pass
        return _shown([each async for each in read_called(database, scope)])


class _Leased(SqlTables):
    """Tables that are held under leases of their own, whatever the engine is told."""

    leases: Mapping[int, int]

    async def load(self, epochs: Mapping[int, int], bodies_of: Collection[str]) -> StoredState | None:
        return await super().load({each: self.leases[each] for each in epochs}, bodies_of)


async def made_scope(database: Database, program: Program, recording: Recording) -> Scope:
    """The scope of a program, in tables that are made for it."""
    async with database.transaction() as connection:
        await connection.run_sync(metadata.create_all, checkfirst=False)
    return await scope_of(database, program, **asdict(recording.origin))


def _shown(found: Sequence[WithWrites]) -> bytes:
    return canonical([{**msgspec.to_builtins(replace(each, ordinal=0)), "writes": asked} for each, asked in found])
