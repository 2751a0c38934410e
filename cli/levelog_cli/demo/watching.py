"""What a step led to, read from the tables, the log and the cluster's own list of requests."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import func, select

from levelog.errors import LevelogError
from levelog_sandbox import Sandbox
from levelog_sandbox.requestlog import Request
from levelog_store.connect.database import Database
from levelog_store.look.overview import find_scopes, listed_resources
from levelog_store.tables import checkpoints, decisions, intents, levels, objects, wakeups

PATIENCE: Final = timedelta(seconds=30)
_AGENT: Final = "levelog/"
_UNSETTLED: Final = ("pending", "claimed", "written")


class Decision(Struct, frozen=True, kw_only=True):
    """One call of a view: the newest record that led to it, what it saw, and what it came to."""

    view: str
    parent: str
    ordinal: int
    cause: int
    round: int
    outcome: str
    desired: bytes | None
    actual: bytes | None


class Outcome(Struct, frozen=True, kw_only=True):
    """What one step led to."""

    records: int
    """Records that reached the log."""
    changes: int
    """Those that show an object; the others are levelog's own: here, receipts of writes."""
    decisions: list[Decision]
    levels: int
    """Levels that there are afterwards."""
    writes: list[Request]
    """Requests that changed an object."""
    requests: list[Request]
    """All requests of levelog but its lists and watches."""


class Watching:
    """Follows a running stack from step to step."""

    def __init__(self, sandbox: Sandbox, database: Database, resources: Sequence[str]) -> None:
        self._sandbox = sandbox
        self._database = database
        self._resources = resources
        self._last_request = 0
        self._last_record = 0
        self._revisions = dict.fromkeys(resources, 0)
        self._told: set[tuple[str, str, str, int]] = set()

    async def settled(self) -> Outcome:
        """Wait until the tables show the cluster as it is and nothing is left to do; return what led there.

        Raises LevelogError if that takes longer than 30 seconds.
        """
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while not await self._is_settled():  # noqa: ASYNC110 - tables have no event to wait for
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise LevelogError(f"demo: the operator did not come to rest within {PATIENCE}") from None
        return await self._outcome()

    async def _is_settled(self) -> bool:
        expected = {
            f"{resource}/{body['metadata'].get('namespace', '_')}/{body['metadata']['name']}": int(
                body["metadata"]["resourceVersion"]
            )
            for resource in self._resources
            for body in self._sandbox.user.list(resource)
        }
        async with self._database.reading() as connection:
            held = (await connection.execute(select(objects.c.object, objects.c.version))).all()
            if dict(held) != expected:
                return False
            for scope in await find_scopes(connection):
                listed = await listed_resources(connection, scope)
                if not all(listed.get(name) for name in self._resources):
                    return False
            waiting = select(func.count()).select_from(wakeups).where(wakeups.c.due_at.is_(None))
            unsettled = select(func.count()).select_from(intents).where(intents.c.state.in_(_UNSETTLED))
            drifting = select(func.count()).select_from(levels).where(levels.c.status != "in_sync")
            return not any([(await connection.execute(query)).scalar_one() for query in (waiting, unsettled, drifting)])

    async def _outcome(self) -> Outcome:
        async with self._database.reading() as connection:
            last = (await connection.execute(select(func.max(checkpoints.c.record_sequence)))).scalar_one()
            fields = [decisions.c[name] for name in Decision.__struct_fields__]
            uid = decisions.c.parent_uid
            rows = await connection.execute(select(uid, *fields).order_by(decisions.c.decided_at, decisions.c.ordinal))
            fresh: list[Decision] = []
            for row in rows.mappings():
                values: dict[str, Any] = dict(row)
                place = (values.pop("parent_uid"), row["view"], row["parent"], row["ordinal"])
                if place not in self._told:
                    self._told.add(place)
                    fresh.append(Decision(**values))
            remaining = (await connection.execute(select(func.count()).select_from(levels))).scalar_one()
        requests = [r for r in self._sandbox.requests.since(self._last_request, user_agent=_AGENT) if r.method != "GET"]
        self._last_request = self._sandbox.requests.last
        records, self._last_record = last - self._last_record, last
        return Outcome(
            records=records,
            changes=self._changes(),
            decisions=fresh,
            levels=remaining,
            requests=requests,
            writes=[r for r in requests if r.changed],
        )

    def _changes(self) -> int:
        """How often objects changed since it was asked last."""
        fresh = {name: self._sandbox.changes(name, since=revision) for name, revision in self._revisions.items()}
        self._revisions |= {name: changes[-1].revision for name, changes in fresh.items() if changes}
        return sum(map(len, fresh.values()))
