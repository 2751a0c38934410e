"""What mode `log` decides on a history."""

import msgspec
from msgspec.structs import replace

from levelog.secrets.redaction import Redactor
from levelog.wire.canonical import canonical
from levelog_processors.program import Program
from levelog_replay.logmode import LogReplay
from levelog_replay.scratch import open_scratch
from levelog_replay.sources import Recording
from levelog_store.look.recall import read_called


async def decided_in_order(
    program: Program, recording: Recording, url: str = "", *, redactor: Redactor | None = None
) -> bytes:
    """Every decision, as JSON, with scratch tables in an empty database at `url`, or in a SQLite file."""
    async with open_scratch(program, recording.origin, url) as scratch:
        replay = LogReplay(recording, scratch, redactor=redactor or Redactor())
        async for _ in replay.run():
            pass
        await replay.close()
        found = [replace(each, ordinal=0) async for each in read_called(scratch.database, scratch.scope)]
        return canonical([msgspec.to_builtins(each) for each in found])
