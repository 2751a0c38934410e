"""Whether the tables belong to the log at hand; if not, they are folded again from its beginning."""

import logging

from levelog.objects import Sequence
from levelog_log.stream import LogStream
from levelog_store.database import Database
from levelog_store.inputs import read_last_record
from levelog_store.scopes import Scope, reset_scope

log = logging.getLogger(__name__)


async def verify(database: Database, scope: Scope, stream: LogStream) -> Scope:
    """Compare the tables with the log before anything is read or written, and start over where they do not match.

    A stream that was made anew has another creation time; one that was rolled back ends before the checkpoint, or
    holds another record there. Levels keep their rounds, so that no idempotency key is used twice.
    """
    reason = await _mismatch(database, scope, stream)
    if not reason:
        return scope
    log.warning("the tables are folded again from the beginning of the log: %s", reason)
    return await reset_scope(database, scope, stream_created=stream.identity.created, reason=reason)


async def _mismatch(database: Database, scope: Scope, stream: LogStream) -> str:
    if scope.stream_created != stream.identity.created:
        return (
            f"the stream was made at {stream.identity.created}, the tables come from one made at {scope.stream_created}"
        )
    async with database.reading() as connection:
        sequence, record_id = await read_last_record(connection, scope.number)
    if sequence == 0:
        return ""
    state = await stream.state()
    if state.last_seq < sequence:
        return f"the log ends at {state.last_seq}, but was folded up to {sequence}: it was rolled back"
    if sequence < state.first_seq:
        return f"the log begins at {state.first_seq}, but was folded only up to {sequence}: records in between expired"
    found = await stream.record_at(Sequence(sequence))
    if found is None or found.record_id != record_id:
        return f"record {sequence} is another one than was folded: the log was rolled back and written again"
    return ""
