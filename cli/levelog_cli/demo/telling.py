"""What a step of the story comes to: read from the tables, the log and the cluster's requests, and printed."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from sqlalchemy import func, select

from levelog.levels import drift_between
from levelog_base.counting import counted
from levelog_base.errors import LevelogError
from levelog_cli.demo.steps import StoryStep, ViewCall
from levelog_cli.printing.tables import folded
from levelog_sandbox import Sandbox
from levelog_sandbox.requestlog import LoggedRequest
from levelog_store.connect.database import Database
from levelog_store.look.contact import listed_resources
from levelog_store.owners.scopes import find_scopes
from levelog_store.rows import UNSETTLED
from levelog_store.tables import checkpoints, decisions, intents, levels, objects, wakeups

PATIENCE: Final = timedelta(seconds=30)
_AGENT: Final = "levelog/"


class StepResult(Struct, frozen=True, kw_only=True):
    """The results of one step."""

    records: int
    """Records that reached the log."""
    changes: int
    """The number of records that show an object; the others are levelog's own: here, receipts of writes."""
    decisions: list[ViewCall]
    levels: int
    """Levels that there are afterwards."""
    writes: list[LoggedRequest]
    """Requests that changed an object."""
    requests: list[LoggedRequest]
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

    async def settled(self) -> StepResult:
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
            unsettled = select(func.count()).select_from(intents).where(intents.c.state.in_(UNSETTLED))
            drifting = select(func.count()).select_from(levels).where(levels.c.status != "in_sync")
            return not any([(await connection.execute(query)).scalar_one() for query in (waiting, unsettled, drifting)])

    async def _outcome(self) -> StepResult:
        async with self._database.reading() as connection:
            last = (await connection.execute(select(func.max(checkpoints.c.record_sequence)))).scalar_one()
            fields = [decisions.c[name] for name in ViewCall.__struct_fields__]
            uid = decisions.c.parent_uid
            calls = select(uid, *fields).where(decisions.c.is_called)
            rows = await connection.execute(calls.order_by(decisions.c.decided_at, decisions.c.ordinal))
            fresh: list[ViewCall] = []
            for row in rows.mappings():
                values: dict[str, Any] = dict(row)
                place = (values.pop("parent_uid"), row["view"], row["parent"], row["ordinal"])
                if place not in self._told:
                    self._told.add(place)
                    fresh.append(ViewCall(**values))
            remaining = (await connection.execute(select(func.count()).select_from(levels))).scalar_one()
        requests = [r for r in self._sandbox.requests.since(self._last_request, user_agent=_AGENT) if r.method != "GET"]
        self._last_request = self._sandbox.requests.last
        records, self._last_record = last - self._last_record, last
        return StepResult(
            records=records,
            changes=self._changes(),
            decisions=fresh,
            levels=remaining,
            requests=requests,
            writes=[r for r in requests if r.changed],
        )

    def _changes(self) -> int:
        """The number of changes of objects since the last call."""
        fresh = {name: self._sandbox.changes(name, since=revision) for name, revision in self._revisions.items()}
        self._revisions |= {name: changes[-1].revision for name, changes in fresh.items() if changes}
        return sum(map(len, fresh.values()))


_TIE: Final = "\u00a0"
"""A space at which no line is broken."""


def tell_start(console: Console) -> None:
    """Print what takes a second or two."""
    _say(console, "Starts NATS, SQLite and a Kubernetes API in memory, and the operator of examples/webs.")


def tell_lists(console: Console, resources: Sequence[str], outcome: StepResult) -> None:
    """Print what is in the log before the story."""
    _say(
        console,
        f"Records 1 to {outcome.records} of the log say in each of its partitions when the first lists of "
        f"{' and '.join(resources)} began and ended: there was nothing in them.",
    )


def tell(console: Console, number: int, step: StoryStep, outcome: StepResult) -> None:
    """Print one step."""
    console.print(f"\n[bold]{number}. {escape(step.title)}[/bold]")
    _line(console, "log", _records(outcome))
    if outcome.decisions:
        _line(console, "woke", _calls(outcome.decisions))
    elif outcome.levels:
        after = "both records" if outcome.records == 2 else f"all {outcome.records} records"
        _line(console, "woke", f"nothing: after {after}, all that it reads is as before")
        _line(console, "level", "as before, in sync")
    else:
        _line(console, "woke", "nothing: the level went with its Web; the cluster collects the pods")
    for decision in outcome.decisions:
        _line(console, "level", _level(decision))
    writes = [_request(request).replace(" ", _TIE) for request in outcome.requests]
    _line(console, "API", "; ".join(writes) if writes else "no write")
    if step.looked_between(outcome.decisions):
        _line(console, "note", f"This time it looked between the two changes: {step.then}")


def tell_sum(console: Console, summary: dict[str, Any]) -> None:
    """Print what it came to."""
    calls = " and ".join(f"{name} {counted(count, 'time')}" for name, count in summary["calls"].items())
    spurious = counted(summary["spurious_wakes"], "call") if summary["spurious_wakes"] else "no calls"
    writes, records = counted(summary["writes"], "write"), counted(summary["records"], "record")
    console.print()
    _say(
        console,
        f"Converged in {summary['seconds']} s, with {writes} to the API. Called {calls}; "
        f"{spurious} without a change to look at or a drift to close. "
        f"The log holds {records}: of objects, marks of the first lists, and receipts of writes.",
    )


def tell_how_to_try(console: Console, kubeconfig: str, data_dir: Path) -> None:
    """Print what a second terminal needs."""
    console.print("Stays up until Ctrl-C. For kubectl and levelog in a second terminal:", soft_wrap=True)
    console.print(f"export KUBECONFIG={kubeconfig} LEVELOG_DATA_DIR={data_dir}", highlight=False, soft_wrap=True)


def _line(console: Console, name: str, text: str) -> None:
    _say(console, text, f"   {name:<6} ")


def _say(console: Console, text: str, begin: str = "") -> None:
    first, *more = (escape(line.replace(_TIE, " ")) for line in folded(text, begin, console.width))
    label = begin.strip()
    console.print(first.replace(label, f"[dim]{label}[/dim]", 1), *more, sep="\n", highlight=False, soft_wrap=True)


def _records(outcome: StepResult) -> str:
    others = outcome.records - outcome.changes
    if not others:
        return f"{counted(outcome.records, 'record')} of objects"
    receipts = f"{others} receipts of writes" if others > 1 else "1 receipt of a write"
    return f"{counted(outcome.records, 'record')}: {outcome.changes} of objects, {receipts}"


def _calls(decisions: list[ViewCall]) -> str:
    """The calls of the view, and the newest record behind each."""
    *causes, last = (str(decision.cause) for decision in decisions)
    if not causes:
        return f"{decisions[0].view} once, for record {last} of the log"
    return f"{decisions[0].view} {len(decisions)} times, for records {', '.join(causes)} and {last} of the log"


def _level(decision: ViewCall) -> str:
    if decision.desired is None or decision.actual is None:
        return decision.status
    desired, actual = msgspec.json.decode(decision.desired), msgspec.json.decode(decision.actual)
    drift = drift_between(desired, actual)
    counts = f"{len(desired)} wanted, {len(actual)} there"
    return f"{counts}: {drift or 'in sync'} → {decision.status}" if drift else f"{counts}: in sync"


def _request(request: LoggedRequest) -> str:
    effect = "" if request.changed else ", nothing changed"
    return f"{request.verb} {request.resource}/{request.name} ({request.status_code}{effect})"
