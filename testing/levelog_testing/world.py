"""The parts of a simulation: a sandbox cluster, SQLite tables, and the live code that folds, decides and sends."""

import tempfile
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from sqlalchemy import create_engine

from levelog.calls.audithook import check_purity
from levelog.indices import Contact
from levelog.kinds import expand
from levelog.operator import Operator
from levelog.resources import Manifest, ResourceType, is_external
from levelog_actuator.effects import caller_for
from levelog_actuator.outbox import ActuatorSettings, Outbox
from levelog_actuator.requests import Order
from levelog_actuator.results import Ended, Later, Result
from levelog_actuator.sending import Sender
from levelog_base.errors import LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import CLUSTER_SCOPE, Application, Cluster, GroupResource, ObjectKey, Partition, Version
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import (
    BookmarkNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    Record,
    SyncFinished,
    SyncStarted,
)
from levelog_base.wire.subjects import partition_of
from levelog_ingest.recorder import trim
from levelog_kube.client import KubeClient, connect
from levelog_kube.discovery import watchable_kinds
from levelog_log.notifications import Listener, Notifier
from levelog_processors.deliver.delivery import Delivery
from levelog_processors.deliver.timers import Timers
from levelog_processors.engine import Engine
from levelog_processors.hooks import Lifecycle
from levelog_processors.live import LiveIndices
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_processors.tables import SqlTables
from levelog_sandbox import Sandbox, StatusError
from levelog_store.actuate.claims import ClaimedIntent, new_claim, read_open, taken
from levelog_store.actuate.outcomes import postpone, store_receipts
from levelog_store.connect.database import Database
from levelog_store.dialects import change, run
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import IndexKey, Scope, WholeIndex
from levelog_store.tables import intents, metadata
from levelog_testing.clock import Clock
from levelog_testing.outside import Externals, StandIns
from levelog_testing.pacing import Runs, VirtualPauses

PARTITIONS: Final = 4
REDACTOR: Final = Redactor(b"of simulations, where nothing is secret")
"""Views see hashes in place of secret values, as they do live."""
MOST_BATCHES: Final = 1000
"""A simulation that does not come to rest within so many batches is a loop, and is refused."""

_PROCESS: Final = "simulation"
"""Who folds, decides and sends, in leases, claims and receipts."""
_LEASE: Final = timedelta(days=1)
"""By the database's clock, which is not the simulation's: longer than any simulation takes."""


class World:
    """Everything that a simulation steps through; built by `open_world`, used in one event loop."""

    def __init__(
        self, sandbox: Sandbox, database: Database, scope: Scope, program: Program, sender: Sender, clock: Clock
    ) -> None:
        self.sandbox = sandbox
        self.database = database
        self.scope = scope
        self.program = program
        self.clock = clock
        self.refusals: list[Refusal] = []
        self.is_echoing = True
        self.engine = Engine(SqlTables(database, scope, hold_state=False), program, patience=None, redactor=REDACTOR)
        self.live = _Indices(database, scope, program, _NoNotifier())
        self.live.engine = self.engine
        self._sender = sender
        self.effects = StandIns(program.effects, self.engine.evaluator.calls.count, program.unrecorded)
        """The functions in place of effects."""
        self._records: list[LoggedRecord] = []
        """The log, as far as record handlers are called."""
        calling = {"patience": None, "clock": clock, "call": self.effects.unrecorded_function}
        self._delivery = Delivery(database, scope, program, self._read_object, **calling)
        self._delivered_to = 0
        self._timers = Timers(database, scope, program, self.engine.whole, **calling)
        self._pauses = VirtualPauses(clock)
        self.live.waits = self._pauses.waiting
        self._outbox = Outbox(database, scope, _PROCESS, ActuatorSettings())
        self.caller = caller_for(
            self._outbox,
            self.effects.handlers,
            REDACTOR,
            clock,
            self.live.index,
            send=self._send_for_call,
            listener=Listener(),
            pauses=self._pauses,
        )
        assert self.caller.daemons is not None  # noqa: S101 - there are indices
        self._daemons = self.caller.daemons
        self._runs = Runs(self._pauses)
        self._sequence = 0
        self._revisions = dict.fromkeys(program.resources, 0)
        self.externals = Externals(program.sources)
        self._postponed: dict[str, datetime] = {}
        self._written: set[int] = set()
        """resourceVersions of the operator's own writes."""
        self._withheld: list[tuple[int, Record]] = []

    async def begin(self) -> None:
        """Take the partitions and list every resource, empty as it is."""
        leases = Leases(self.database, self.scope, owner=_PROCESS, duration=_LEASE)
        epochs = await leases.tend()
        if self.program.record_handlers:
            await self._delivery.hold(epochs)
        if self.program.timers:
            await self._timers.hold(epochs)
        await self.engine.load(epochs)
        begun: list[Record] = []
        ended: list[Record] = []
        for name in sorted(self.program.watched):
            resource = GroupResource.parse(name)
            begun.append(SyncStarted(resource=resource, sync_id=name, time=self.clock()))
            ended.append(SyncFinished(resource=resource, sync_id=name, version=Version(0), time=self.clock()))
        await self.fold([*begun, *ended])

    async def close(self) -> None:
        """End what runs of the user's functions."""
        self._daemons.end()
        await self._runs.end()
        await self._delivery.close()
        await self._timers.close()
        await self.engine.close()
        await self.caller.executor.close()

    async def run(self) -> None:
        """Fold, decide and write until nothing is pending now."""
        for _ in range(MOST_BATCHES):
            await self.sandbox.settle()
            moved = await self._take_changes()
            batch = await self.engine.decide(now=self.clock())
            moved |= bool(batch.decided)
            moved |= await self._send()
            moved |= await self._deliver()
            moved |= await self._call_timers()
            moved |= await self._settle_daemons()
            if not moved:
                return
        raise LevelogError(
            f"the simulation did not come to rest within {MOST_BATCHES} batches: levels ask for writes in a circle"
        )

    async def advance(self, time: timedelta) -> None:
        """Run at each moment of this time at which something is due, and at its end."""
        if time < timedelta(0):
            raise ValueError(f"time passes forwards only, not by {time}")
        end = self.clock.now + time
        await self.run()
        while (due := await self._next_due()) is not None and due < end:
            await self._pass_to(due)
        await self._pass_to(end)

    async def _pass_to(self, time: datetime) -> None:
        """Let it be that time, by what the log records too if entries expire by it, and run."""
        self.clock.now = time
        self._pauses.wake()
        if self.program.expires:
            marks: list[Record] = [
                BookmarkNoted(resource=GroupResource.parse(name), version=Version(0), time=time)
                for name in self.program.resources
            ]
            marks += [self.externals.bookmark(n, time) for n in self.program.sources if n not in self.externals.lost]
            await self.fold(marks)
        await self.run()

    def user_apply(self, manifest: Manifest) -> Manifest:
        """Apply a manifest as a user."""
        try:
            return self.sandbox.user.apply(manifest)
        except StatusError as error:
            if error.code == 404:
                error.add_note(
                    "The simulation serves built-in kinds and the resources that the operators' classes declare, in "
                    f"their versions: {', '.join(self._served())}. Apply a CustomResourceDefinition to have more."
                )
            raise

    async def _next_due(self) -> datetime | None:
        """When the next wakeup or postponed write is due, or an entry ends, after now."""
        now = self.clock()
        postponed = [self._postponed.get(each.key) for each in await self._outbox.read(read_open)]
        times = (
            self.engine.state.wakes.next_due,
            self.engine.state.buckets.next_expiry_after(now),
            self._delivery.due_at,
            self._timers.due_at,
            self._pauses.due_at,
            *postponed,
        )
        return min((each for each in times if each is not None and each > now), default=None)

    def _served(self) -> list[str]:
        return sorted(f"{resource.api_version} {resource.kind}" for resource in _declared(self.program.operators))

    async def _take_changes(self) -> bool:
        """Fold what happened in the cluster, but for the operator's own writes while those are not echoed."""
        found, self._withheld = self._withheld, []
        for name, resource in self.program.resources.items():
            for each in self.sandbox.changes(name, since=self._revisions[name]):
                self._revisions[name] = each.revision
                found.append((each.revision, self._record(resource, each.type, each.shown.encoded)))
        if not self.is_echoing:
            self._withheld = [each for each in found if each[0] in self._written]
            found = [each for each in found if each[0] not in self._written]
        found.sort(key=lambda each: each[0])
        if found:
            await self.fold([record for _, record in found])
        return bool(found)

    def _record(self, resource: ResourceType, kind: str, body: bytes) -> Record:
        trimmed = trim(body, api_version=resource.api_version, kind=resource.kind)
        key = ObjectKey(group=resource.group, resource=resource.plural, namespace=trimmed.namespace, name=trimmed.name)
        return (ObjectDeleted if kind == "DELETED" else ObjectSeen)(
            key=key,
            uid=trimmed.uid,
            version=trimmed.version,
            origin="watch",
            time=self.clock(),
            written=trimmed.written,
            body=REDACTOR.redact_body(key.group_resource, trimmed.body),
        )

    async def fold(self, records: Sequence[Record]) -> None:
        """Log records, in the partition of their object or else in all, and fold them."""
        placed = [(partition, record) for record in records for partition in _partitions_of(record)]
        logged = [
            LoggedRecord(sequence=LogSequence(at), partition=Partition(partition), record_id=str(at), record=record)
            for at, (partition, record) in enumerate(placed, start=self._sequence + 1)
        ]
        self._sequence += len(logged)
        if self.program.record_handlers:
            self._records += logged
        folded = self.engine.fold(logged)
        await self.engine.flush()
        self._timers.see(logged)
        self.live.tell(folded.keys)

    async def _deliver(self) -> bool:
        """Call record handlers for what is new, and again where that is due; tells whether anything was."""
        delivery = self._delivery
        fresh = self._records[self._delivered_to :]
        due = delivery.due_at
        if fresh:
            self._delivered_to = len(self._records)
            await delivery.deliver(fresh, fresh[-1].sequence)
        elif not delivery.is_busy and (due is None or due > self.clock()):
            return False
        await delivery.step()
        return True

    async def _call_timers(self) -> bool:
        """Call timers without records that are due; tells whether any was."""
        timers, due = self._timers, self._timers.due_at
        if not timers.is_busy and (due is None or due > self.clock()):
            return False
        await timers.call_due()
        await timers.step()
        return True

    async def _read_object(
        self, key: ObjectKey, partition: int, after: int, upto: int
    ) -> tuple[Sequence[LoggedRecord], None]:
        between = (each for each in self._records if each.partition == partition and after < each.sequence <= upto)
        found = [e for e in between if isinstance(e.record, ObjectSeen | ObjectDeleted) and e.record.key == key]
        return found, None

    async def _send(self) -> bool:
        """Send what is pending, in the order of decision; each receipt is folded at once.

        At most one intent of each target is under way: one that may have taken effect, or else the earliest.
        """
        found = sorted(await self._outbox.read(read_open), key=lambda each: not each.is_doubtful)
        first: dict[str, ClaimedIntent] = {}
        for each in found:
            if each.key not in self._runs:
                first.setdefault(each.target, each)
        due = [each for each in first.values() if self._postponed.get(each.key, self.clock()) <= self.clock()]
        if not due:
            return False
        for each in due:
            if each.verb == "call" and not self.caller.is_daemon(each):
                self.effects.require(each.effect)
        number = new_claim()
        await self._outbox.write(run, taken, _LEASE, of_keys=[each.key for each in due], by=_PROCESS, number=number)
        claimed = [replace(each, attempts=each.attempts + 1, claim=number) for each in due]
        return any([await self._send_one(each) for each in claimed])

    async def _send_one(self, intent: ClaimedIntent) -> bool:
        """Send it; tells whether more follows from that at once."""
        if self.caller.is_daemon(intent):
            self._postponed.pop(intent.key, None)
            self.engine.evaluator.calls.count(intent.effect)
            self._runs.begin(intent.key, f"daemon {intent.view} of {intent.parent}", self.caller.carry_out(intent))
            return True
        if intent.verb == "call":
            return await self._conclude(await self.caller.carry_out(intent))
        return await self._conclude(await self._sender.carry_out(intent, lambda: True))

    async def _send_for_call(self, order: Order) -> Result:
        result = await self._sender.send(order, lambda: True)
        if isinstance(result, Ended):
            self._written.add(result.version)
        return result

    async def _settle_daemons(self) -> bool:
        """Show daemons the levels that they wait for, and let them run until all wait; tells whether one moved."""
        has_news = await self._daemons.levels.look()
        has_moved, ended = await self._runs.settle()
        for result in ended:
            await self._conclude(result)
        return has_news or has_moved

    async def _conclude(self, result: Result) -> bool:
        """Give an intent back, or fold its receipt; tells whether it has ended, or its level may withdraw it now."""
        intent = result.intent
        if isinstance(result, Later):
            due_at = self._postponed[intent.key] = self.clock() + result.delay
            await self._outbox.write(postpone, _PROCESS, [result.postponement])  # by the database's clock
            await self._outbox.write(change, intents, intents.c.key == intent.key, due_at=due_at)
            level = intent.view, intent.parent  # as the ledger does after an attempt that failed
            return not result.is_doubtful and self.engine.state.wakes.hasten(level, self.clock())
        self._written.add(result.version)
        receipt = result.receipt(self.scope.application, self.clock(), _PROCESS)
        if intent.verb == "call":
            await self._outbox.write(store_receipts, _PROCESS, [(receipt, intent.claim)], is_relayed=True)
        await self.fold([receipt])
        return True


class Refusal:
    """An answer that the cluster gives instead of carrying out a write."""

    def __init__(self, status: int, target: str, times: int) -> None:
        self.status = status
        self._target = target
        self._left = times

    def takes(self, target: str) -> bool:
        """Tell whether a write to the target is answered so, this time."""
        if self._left == 0 or self._target not in ("", target):
            return False
        self._left -= 1
        return True


@asynccontextmanager
async def open_world(
    operators: Sequence[Operator], clock: Clock, kubeconfig: Path | None = None
) -> AsyncGenerator[World]:
    """Start a sandbox and make the tables; both go at the end."""
    refusals: list[Refusal] = []
    check_purity()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-simulation-")))
        sandbox = await stack.enter_async_context(
            Sandbox(established_after_seconds=0, clock=clock, refuses=partial(_refused, refusals))
        )
        _serve(sandbox, _declared(operators))
        url = f"sqlite:///{folder / 'levelog.db'}"
        (folder / "levelog.db").write_bytes(_tables())
        database = await stack.enter_async_context(await Database.open(url, is_scratch=True))
        if kubeconfig is not None:
            sandbox.kubeconfig(kubeconfig)
        client: KubeClient = await stack.enter_async_context(await connect(sandbox.kubeconfig(folder / "kubeconfig")))
        if any(operator.open_selectors for operator in operators):
            expand(operators, await watchable_kinds(client))
        program = Program(operators)
        uid = sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"]
        scope = await open_scope(
            database,
            cluster=Cluster(uid),
            application=Application(program.operators[0].name),
            partitions=PARTITIONS,
            stream_created="simulation",
            fingerprint=program.fingerprint,
            code=program.handlers,
        )
        world = World(sandbox, database, scope, program, Sender(client, ActuatorSettings(), REDACTOR), clock)
        stack.push_async_callback(world.close)
        world.refusals = refusals
        await stack.enter_async_context(world.live)
        await stack.enter_async_context(Lifecycle(program, world.live.index))
        await world.begin()
        yield world


@cache
def _tables() -> bytes:
    """A SQLite file with what the migrations make; a test compares the two."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection, checkfirst=False)
    with closing(engine.raw_connection()) as raw:
        made: bytes = raw.driver_connection.serialize()  # type: ignore[union-attr]
    engine.dispose()
    return made


class _Indices(LiveIndices):
    """Live indices of the state in memory."""

    engine: Engine | None = None

    @property
    def _state(self) -> State:
        assert self.engine is not None  # noqa: S101 - given as soon as it is made
        return self.engine.state

    async def values(self, place: IndexKey) -> tuple[int, tuple[bytes, ...]]:
        bucket = self._state.buckets.get(place)
        return max(bucket.version, 0), bucket.values

    async def whole(self, name: str, known: Mapping[str, int] | None) -> WholeIndex | None:
        found = self._state.buckets.whole(name, PARTITIONS)
        return None if found.versions == known else found

    async def contact(self, resource: str) -> Contact:
        return self._state.contact(resource)


class _NoNotifier(Notifier):
    """Nobody else folds; what is folded here is told to the live indices."""

    def __init__(self) -> None:
        self._listeners = {}


def _partitions_of(record: Record) -> Collection[int]:
    key = record.parent if isinstance(record, ReceiptNoted) else getattr(record, "key", None)
    return range(PARTITIONS) if key is None else (partition_of(key, PARTITIONS),)


def _refused(refusals: Sequence[Refusal], verb: str, resource: str, namespace: str, name: str) -> int:  # noqa: ARG001
    target = f"{resource}/{namespace or CLUSTER_SCOPE}/{name}"
    return next((refusal.status for refusal in refusals if refusal.takes(target)), 0)


def _serve(sandbox: Sandbox, resources: Iterable[ResourceType]) -> None:
    """Let the sandbox serve every resource, with any content."""
    for resource in sorted(resources, key=lambda each: (each.group, each.plural)):
        if not sandbox.serves(str(resource.group_resource)):
            sandbox.serve(
                resource.version,
                resource.plural,
                resource.kind,
                namespaced=resource.scope != "Cluster",
                group=resource.group,
            )


def _declared(operators: Iterable[Operator]) -> set[ResourceType]:
    declared = {r for operator in operators for r in (*operator.resources().values(), *operator.reads())}
    return {resource for resource in declared if not is_external(resource.group_resource)}
