"""Scopes: one application on one cluster, the code that may commit to it, and the stream behind its tables."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace
from sqlalchemy import Row, null, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.finalizing import PREFIX
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, Cluster
from levelog_store.connect.database import Database
from levelog_store.dialects import change, insert_for, remove
from levelog_store.fold.calls import IS_CALL
from levelog_store.owners.handlers import Handler, differences, unfinalized
from levelog_store.owners.leases import free_leases
from levelog_store.owners.promotion import promote, read_handlers
from levelog_store.rows import UNKNOWN, Scope
from levelog_store.tables import (
    actuators,
    checkpoints,
    decisions,
    handlers,
    index_entries,
    intents,
    leases,
    levels,
    metadata,
    processors,
    scopes,
)

log = logging.getLogger(__name__)

_KEPT: Final = (actuators, checkpoints, decisions, handlers, intents, leases, levels, processors, scopes)
_FOLDED: Final = tuple(table for table in metadata.sorted_tables if table not in _KEPT)


async def open_scope(
    database: Database,
    *,
    cluster: Cluster,
    application: Application,
    partitions: int,
    stream_created: str,
    fingerprint: str,
    code: Sequence[Handler] = (),
) -> Scope:
    """Find the scope, or create it with a checkpoint and a lease for each partition, and promote this code.

    Promoting another fingerprint raises all epochs, so that the older code can no longer commit. `code` are its
    functions: the owners of the partitions recompute what changed. The scope names the stream that it was made for: if
    that is not `stream_created`, or its history is not what was folded, call `reset_scope` next. Raises
    ConfigurationError if the number of partitions has changed.
    """
    query = select(scopes).where(scopes.c.cluster == cluster, scopes.c.application == application)
    async with database.transaction() as connection:
        row = (await connection.execute(query)).first()
        if row is None:
            values = {"cluster": cluster, "application": application, "partitions": partitions, "resets": 0}
            values |= {"fingerprint": fingerprint, "stream_created": stream_created}
            await connection.execute(insert_for(database.dialect, scopes).on_conflict_do_nothing(), values)
            row = (await connection.execute(query)).one()
            await _make_partitions(connection, _scope(row))
        found = replace(_scope(row), fingerprint=fingerprint)
        if found.partitions != partitions:
            raise ConfigurationError(
                f"application {application} was folded with {found.partitions} partitions of cluster {cluster}, "
                f"the log has {partitions} now: start it with an empty database"
            )
        is_old = scopes.c.fingerprint != fingerprint
        is_new = await change(connection, found, scopes, is_old, fingerprint=fingerprint) > 0
        is_unfinished = bool(differences(await read_handlers(connection, found), code))
    if is_new or is_unfinished:  # unfinished: whoever promoted this code has not come to comparing the handlers
        # In a transaction of its own: from the commit above on, `guard` refuses the older code, so that this waits for
        # what it had begun and for nothing that it begins meanwhile.
        async with database.transaction() as connection:
            await _promote(connection, found, code, is_new=is_new)
    return found


async def _promote(connection: AsyncConnection, scope: Scope, code: Sequence[Handler], *, is_new: bool) -> None:
    """Take all leases and compare the code's handlers with those that the tables come from.

    Nothing is done if other code was promoted meanwhile, or another process has done it.
    """
    row = await connection.execute(select(scopes.c.fingerprint).where(scopes.c.scope == scope.number).with_for_update())
    if row.scalar_one() != scope.fingerprint:
        return  # this process learns it from its leases
    known = await read_handlers(connection, scope)
    if not is_new and not differences(known, code):
        return
    await _dispossess(connection, scope)
    found = await promote(connection, scope, code)
    if not known:
        return  # the first code; all of it is new
    for what, names in (
        ("indices are computed anew", [handler.name for handler in found.indexed]),
        ("views are evaluated anew", [handler.name for handler in found.evaluated]),
        ("views are decided on anew where they are not in sync", sorted(found.decided)),
        ("indices are gone", sorted(found.emptied - {handler.name for handler in found.indexed})),
        ("views are gone", sorted(found.forgotten - {handler.name for handler in found.evaluated})),
    ):
        if names:
            log.info("other code of %s: %s: %s", scope.application, what, ", ".join(names))
    for operator, resource in unfinalized(known, code):
        log.warning(
            "%s that the code before kept cannot be deleted: nothing takes the finalizer %s%s off any more. Add "
            "op.remove_finalizer(…) of their class, or run `levelog remove-finalizers` with the code before",
            resource,
            PREFIX,
            operator,
        )


async def reset_scope(database: Database, scope: Scope, *, stream_created: str, reason: str) -> Scope:
    """Delete everything that was folded, so that it is folded again from the beginning of the stream.

    Levels keep their rounds and the numbers of their evaluations, and are blocked for `reason`. Finished calls of
    effects stay, and an actuator records them again. Intents stay, but unclaimed ones are superseded: their parent may
    be gone without a record of its deletion. A call that was tried waits, so that it keeps its key. Receipts that did
    not come back through the log are published again. All epochs are raised. If another process did this since `scope`
    was opened, nothing happens; the current scope is returned.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(select(scopes).where(scopes.c.scope == scope.number).with_for_update())).one()
        found = replace(_scope(row), fingerprint=scope.fingerprint)
        if found.resets != scope.resets:
            return found
        await _dispossess(connection, scope)
        for table in _FOLDED:
            await remove(connection, scope, table, ~IS_CALL if table is index_entries else true())
        await change(
            connection, scope, checkpoints, sequence=0, mirrored=0, record_sequence=0, record_id="", time=null()
        )
        await remove(connection, scope, levels, levels.c.position.is_not(None))
        await change(connection, scope, levels, **UNKNOWN, reason=reason, cause=0, suppressed="")
        intent = intents.c
        is_untried = intent.state == "pending", or_(intent.verb != "call", intent.attempts == 0)
        await change(connection, scope, intents, *is_untried, state="superseded")
        is_unfolded = intent.receipt.is_not(None), intent.is_folded.is_(False)
        await change(connection, scope, intents, *is_unfolded, is_relayed=False)
        is_observed = intent.observed_version.is_not(None)
        await change(connection, scope, intents, is_observed, observed_version=null(), observed_at=null())
        anew = {"stream_created": stream_created, "resets": found.resets + 1}
        await change(connection, scope, scopes, **anew, calls_recorded_at=null())
        return replace(found, **anew)


async def find_scopes(connection: AsyncConnection) -> list[Scope]:
    """Every application on every cluster that the database holds, sorted by name and cluster."""
    rows = await connection.execute(select(scopes).order_by(scopes.c.application, scopes.c.cluster))
    return [_scope(row) for row in rows]


async def scopes_of(database: Database, *, application: str = "", cluster: str = "") -> list[Scope]:
    """Applications of that name, on that cluster; empty: any. Raises ConfigurationError if there are none."""
    async with database.reading() as connection:
        found = await find_scopes(connection)
    if not found:
        raise ConfigurationError(f"database {database.name} holds no application yet: `levelog run FILE` makes one")
    chosen = [each for each in found if application in ("", each.application) and cluster in ("", each.cluster)]
    if not chosen:
        held = ", ".join(f"{scope.application} on {scope.cluster}" for scope in found)
        raise ConfigurationError(f"database {database.name} holds no such application; it holds: {held}")
    return chosen


def _scope(row: Row[Any]) -> Scope:
    """A scope with the code that may commit to it."""
    names = ("cluster", "application", "partitions", "fingerprint", "stream_created", "resets")
    return Scope(number=row.scope, **{name: getattr(row, name) for name in names})


async def _make_partitions(connection: AsyncConnection, scope: Scope) -> None:
    """Rows for each partition, once: a process that found the scope being made waits for them in its insert."""
    each = range(scope.partitions)
    points = [
        {"scope": scope.number, "partition": n, "sequence": 0, "record_id": "", "record_sequence": 0} for n in each
    ]
    free = [{"scope": scope.number, "partition": n, "epoch": 0, "owner": "", "expires_at": None} for n in each]
    for table, rows in ((checkpoints, points), (leases, free)):
        await connection.execute(insert_for(connection.dialect, table).on_conflict_do_nothing(), rows)


async def _dispossess(connection: AsyncConnection, scope: Scope) -> None:
    """Take all leases from their owners, and forget these."""
    await free_leases(connection, leases.c.scope == scope.number)
    await remove(connection, scope, processors)
