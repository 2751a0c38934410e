"""A small world: a cluster, a log, two processors, an actuator and the tables, stepped one at a time and checked."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from levelog import Operator
from levelog_base.errors import CommitsLost, HistoryLost, LeaseLost
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord
from levelog_base.wire.subjects import partition_of
from levelog_log.notifications import Topic
from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.decide.decisions import Decided
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope
from rigs.lostcommits import keep, lose
from rigs.machine.checks import (
    Broken,
    Call,
    check_call,
    check_deletions,
    check_fold,
    check_settling,
    check_state,
    check_tables,
    check_told,
    check_waits,
    check_waits_go_on,
    is_led_to,
    is_unsettled,
    latest,
    named_level,
)
from rigs.machine.cluster import KINDS
from rigs.machine.laboratory import Meanwhile, StepWorld
from rigs.machine.log import CLUSTER, PARTITIONS
from rigs.machine.operator import AWAITED, CHANGING, make_operator
from rigs.machine.reference import LEVELS, Look, Reference
from rigs.machine.seam import SeamedDatabase
from rigs.machine.sender import SteppedSender
from rigs.machine.tables import Tables, read_epochs, read_tables
from rigs.machine.worker import Worker


class World(StepWorld):
    """Everything that one example steps through."""

    @staticmethod
    def make_operator(hear: Callable[..., Any]) -> Operator:
        """The operator."""
        return make_operator(hear)

    @classmethod
    def make_program(cls, hear: Callable[..., Any]) -> Program:
        """The same, some of whose levels are awaited without daemons."""
        program = super().make_program(hear)
        vars(program)["awaited"] = frozenset(f"machine/{view}" for view in AWAITED)
        return program

    def __init__(self, database: SeamedDatabase, program: Program, scope: Scope) -> None:
        super().__init__(database, program, scope)
        self._is_emptied = False
        """The tables were, and come from the first record that was left then, or from lists that came later."""
        self.reference, self.state = Reference(), self._empty_state()
        self.sender = SteppedSender(self._database, scope, self.cluster, self.log, self._clock)
        self.is_together = False
        """The actuator takes what processors decide as they decide it."""
        self._looks: dict[tuple[str, ObjectKey], Call] = {}
        self._begun: dict[tuple[str, ObjectKey], int] = {}
        """How often processors had begun when these were taken."""
        """The last call of each view and parent whose outcome was written."""
        self._calls: dict[tuple[str, str, ObjectKey], Call] = {}
        """The last call of each view and parent by a processor, in its last batch or for a function that is slow."""
        self._undisturbed: set[tuple[str, ObjectKey]] = set()
        """Levels that have seen nothing since their last round but what their own writes led to."""
        self._tables: Tables | None = None
        self.before: Tables | None = None
        """The tables when the last batch began."""
        self._read_at = 0
        self.deciding = "A"
        """The processor that decides, or was the last to."""
        self._epochs: dict[int, int] = {}
        self._restarts = 0
        self._told: dict[Topic, Tables] = {}
        """The tables as those saw them who wait, when they were notified last."""
        self._untold: set[str] = set()
        """Processors that a notification is on its way to: levels that others decide on stand otherwise."""
        self._broken: list[Broken] = []

    @property
    def processors_now(self) -> datetime:
        """The time by the clock of the processor that decides."""
        return self.workers[self.deciding].now

    async def tend(self, name: str) -> None:
        """Let a processor renew, take and give up leases."""
        await super().tend(name)
        self._epochs = await read_epochs(self._database, self._scope)

    def _worker(self, name: str) -> Worker:
        worker = super()._worker(name)
        worker.on_told = partial(self._tell, name)
        return worker

    async def _tell(self, name: str, topic: Topic) -> None:
        """Let those who wait for a topic look at the tables."""
        self._told[topic] = await self.tables()
        if topic is Topic.WAKE:
            self._untold |= self.workers.keys() - {name}

    async def fold(self, name: str, most: int = 1000, meanwhile: Meanwhile | None = None) -> bool:
        """Let a processor fold its next records; whether any were folded."""
        worker = self.workers[name]
        try:
            fresh = await worker.fold(most, meanwhile)
        except LeaseLost:
            self._check_lost(worker)
            return False
        except CommitsLost:
            await worker.begin_at_checkpoints()
            return True
        except HistoryLost as lost:
            await self._start_over(worker, str(lost))
            return True
        self._check_held(worker, {logged.partition for logged in fresh})
        self._check_whole(fresh)
        self.reference.fold(fresh)
        for part in parts(each for each in fresh if each.sequence > self.state.folded_to[each.partition]):
            self.state.apply(self.state.fold(part))
        return bool(fresh)

    def _empty_state(self) -> State:
        return State(self._program, self._scope.application, PARTITIONS)

    def expire_records(self) -> None:
        """Let all records of the log expire; what is watched is listed again, so that the log holds lists."""
        self.log.expire()
        self.ingest.list_again()

    async def restore_log(self, lost: int) -> None:
        """Let the log lose its newest records, and list again what is watched: tables that have more begin anew."""
        left = self.log.restore(lost)
        self.ingest.list_again()
        if max((await self.tables()).checkpoints.values(), default=0) > left:
            await self._share()
            worker = next(each for each in self.workers.values() if each.epochs)
            await self._start_over(worker, f"the log ends at {left}")
        for worker in self.workers.values():
            await worker.begin_at_checkpoints()

    async def _start_over(self, worker: Worker, reason: str) -> None:
        """Empty the tables, and begin with what the log still holds, by processes of which each is a new one."""
        try:
            scope = await worker.start_over(reason)
        except LeaseLost:
            self._check_lost(worker)
            return
        self._scope = self.sender.scope = scope
        intents, effects = (await self.tables()).intents, self.sender.effects
        settled = [key for key, row in intents.items() if not is_unsettled(row, self.reference, effects)]
        self.reference, self.state = Reference(settled), self._empty_state()
        self._is_emptied = True
        self._looks, self._calls, self._undisturbed = {}, {}, set()
        await self._begin_anew()

    async def _begin_anew(self) -> None:
        """Let other processes take the place of the processors."""
        begun = [name for name, old in self.workers.items() if old.epochs]
        for name, old in self.workers.items():
            beginnings = old.beginnings
            await old.close()
            self.workers[name] = self._worker(name)
            self.workers[name].beginnings = beginnings
        for name in (*begun, *begun):
            await self.tend(name)

    async def restart(self, name: str) -> None:
        """Kill a processor; every second time the code of a view changes before the next one begins."""
        await super().restart(name)
        self._restarts += 1
        if self._restarts % 2 == 0:
            await self._promote()

    async def _promote(self) -> None:
        """Promote a view's code that has changed, as far as its fingerprint tells."""
        version = str(next(self._serial))
        code = [
            replace(each, fingerprint=version) if (each.kind, each.name) == ("view", f"machine/{CHANGING}") else each
            for each in self._program.handlers
        ]
        self._scope = self.sender.scope = await open_scope(
            self._database,
            cluster=CLUSTER,
            application=self._scope.application,
            partitions=PARTITIONS,
            stream_created=self._scope.stream_created,
            fingerprint=version,
            code=code,
        )
        await self._begin_anew()

    @property
    def _is_begun_anew(self) -> bool:
        """Whether levels still wait for the lists that begin after the tables were emptied."""
        return self._is_emptied and not all(
            self.reference.is_listed(resource) for resource in KINDS if self.ingest.is_watching(resource)
        )

    def _check_whole(self, fresh: Sequence[LoggedRecord]) -> None:
        for partition, last in {logged.partition: logged.sequence for logged in fresh}.items():
            after = self.reference.folded_to[partition] or self.log.records.index(fresh[0])  # empty: it begins anywhere
            skipped = [each.sequence for each in self.log.records[after:last] if each.partition == partition]
            skipped = sorted({*skipped} - {each.sequence for each in fresh})
            if skipped:
                raise Broken(13, f"records {skipped} of partition {partition} are not folded, and later ones are")

    async def decide(self, name: str, meanwhile: Meanwhile | None = None, *, is_slow: bool = False) -> bool:
        """Let a processor decide on one batch of wakes, if it may; whether anything was decided.

        With `is_slow` the reconcile functions that it calls return in `release`.
        """
        worker = self.workers[name]
        self.before = await self.tables()
        is_asked = self.is_set_back or name in self._untold or worker.has_missed
        has_due = self.before.has_due(worker.epochs, self.now) or is_asked
        if not has_due or not await worker.may_decide():
            return False
        slow = {named_level(*level) for level in worker.slow}
        self._calls = {who: call for who, call in self._calls.items() if who[0] != name or who[1:] in slow}
        self.deciding = name
        self._untold.discard(name)
        try:
            batch = await worker.decide(meanwhile, is_slow=is_slow, sender=self.sender if self.is_together else None)
        except LeaseLost:
            self._check_lost(worker)
            return False
        except CommitsLost:
            await worker.begin_at_checkpoints()
            return True
        finally:
            self._raise()
        decided = batch.decided
        self._check_held(worker, {each.level.partition for each in decided})
        self._check_due_times(decided)
        check_settling(decided, self.before, self.reference, self.sender.effects)
        if worker.folded_to == self.reference.folded_to:
            check_deletions(decided, self.before, self.reference, self.now)
        check_waits_go_on(decided, self.before, self.now)
        self._keep_looks(name, decided)
        return bool(decided)

    async def reconnect(self, name: str) -> None:
        """Let a processor's connection to the log be lost, and its reader begin anew."""
        await self.workers[name].begin_anew()

    async def losing(self, meanwhile: Meanwhile) -> None:
        """Let the database lose what is committed meanwhile, by folds and decisions alone, and nobody hear of it."""
        scope, reference, looks = self._scope, deepcopy(self.reference), dict(self._looks)
        kept = await keep(self._database, scope)
        await meanwhile()
        if self._scope is scope:  # or all was emptied meanwhile, which waits for the disk
            await lose(self._database, scope, kept)
            self.reference, self._looks, self._undisturbed = reference, looks, set()

    async def release(self, name: str) -> None:
        """Let the slow functions of a processor return."""
        await self.workers[name].release()

    async def rest(self) -> None:
        """Let everything happen that can happen now, undisturbed."""
        await self._share()
        for name in self.workers:
            await self.release(name)
        await self._settle(4)
        tables = await self.tables()
        waiting = [name for name in tables.wakes if tables.is_due(*name, self.now)]
        if waiting:
            raise Broken(5, f"nobody decides on {waiting}")
        check_waits(tables, self.now)

    async def _go_on(self) -> bool:
        is_moved = False
        for resource in KINDS:
            if not self.ingest.is_watching(resource):
                self.ingest.list(resource)
            is_moved |= self.ingest.watch(resource)
        is_moved |= await self.process()
        while await self.sender.send():
            is_moved = True
        return await self.sender.relay() or is_moved

    async def _share(self) -> None:
        """Let the processors tend their leases until somebody holds each partition."""
        for _ in range(3):
            believed = {place for worker in self.workers.values() for place in worker.epochs.items()}
            if believed == self._epochs.items():
                return
            for name in self.workers:
                await self.tend(name)

    async def tables(self) -> Tables:
        """The tables as they are."""
        if self._tables is None or self._read_at != self._database.transactions:
            self._read_at = self._database.transactions
            self._tables = await read_tables(self._database, self._scope)
        return self._tables

    @property
    def _behind(self) -> set[int]:
        """Partitions that nobody holds, or whose processor has to fold or hear more, and then wakes levels of them."""
        told = {
            partition
            for name, worker in self.workers.items()
            if worker.folded_to == self.reference.folded_to and not worker.has_missed and name not in self._untold
            for partition, epoch in worker.epochs.items()
            if self._epochs[partition] == epoch
        }
        return {*range(PARTITIONS)} - told

    async def check(self) -> None:
        """Compare the tables with what should be. Raises Broken."""
        tables = await self.tables()
        check_told(tables, self._told, self._behind)
        check_state(self.state, self.reference)
        for worker in self.workers.values():
            if worker.epochs and worker.folded_to == self.reference.folded_to:
                check_state(worker.state, self.reference)
        if self._is_begun_anew:
            check_fold(tables, self.reference)
        else:
            check_tables(tables, self.reference, self.sender.effects, self.now, self._behind)

    def hear(self, *given: Any) -> None:
        """Judge one call, when it is made: levelog would take an exception here for the user's."""
        function, parent = given
        if self.before is None:
            raise RuntimeError("a function is called outside a batch")
        view = "parts" if function == "converge" else function
        key = type(parent).resource_type.key(parent.metadata.namespace, parent.metadata.name)
        look: Look = self.reference.look(view, key, self.now, self.before.levels)
        outcome = self.reference.outcome(view, key, self.now, self.before.levels)
        if self._looks_at_others(look) or self.workers[self.deciding].folded_to != self.reference.folded_to:
            return  # it sees levels as it heard of them last, or records that their own processor has not folded
        shown = self.reference.known.copy()
        call = Call(view=view, parent=key, is_reconcile=function == "converge", look=look, outcome=outcome, shown=shown)
        try:
            check_call(
                call,
                self._last((view, key)),
                self.before,
                self.reference,
                self.log,
                self.sender.effects,
                self.now,
            )
        except Broken as broken:
            self._broken.append(broken)
        worker = self.workers[self.deciding]
        if old := [each.sequence for each in worker.unread() if each.sequence <= worker.has_to_reach]:
            self._broken.append(
                Broken(9, f"{view} of {key} is called before {old} are folded, which were there before")
            )
        if not call.is_reconcile:
            self._calls[self.deciding, view, key] = call

    def _looks_at_others(self, look: Look) -> bool:
        """Tell whether a view is given levels on which another processor decides."""
        held = self.workers[self.deciding].epochs
        return any(kind.startswith(LEVELS) and partition_of(key, PARTITIONS) not in held for kind, key, _ in look.reads)

    @property
    def _beginnings(self) -> int:
        return sum(worker.beginnings for worker in self.workers.values())

    def _last(self, level: tuple[str, ObjectKey]) -> Call | None:
        """The call that a level comes from, which a start may repeat for a whole index, and for changed code."""
        last = self._looks.get(level)
        if last is None or self._begun[level] == self._beginnings:
            return last
        place = level[0], partition_of(level[1], PARTITIONS)
        is_outdated = self.before is not None and place in self.before.unfinished
        return None if is_outdated or any(key == "*" for _, key, _ in last.look.reads) else last

    def _keep_looks(self, name: str, decided: Sequence[Decided]) -> None:
        for each in (each for each in decided if each.is_evaluated):
            level, has_acted = named_level(*each.name), each.level.round > each.basis.round
            call = self._calls.get((name, *level))
            self._check_withdrawn(level, call, each)
            if call is not None:
                self._looks[level], self._begun[level] = replace(call, has_acted=has_acted), self._beginnings
            else:  # one that was blocked was not called, and is called when it is not any more
                self._looks.pop(level, None)
            if has_acted and call is not None:
                self._undisturbed.add(level)

    def _check_withdrawn(self, level: tuple[str, ObjectKey], call: Call | None, decided: Decided) -> None:
        """Compare what was withdrawn with what has changed since it was asked for."""
        last, tables, effects = self._looks.get(level), self.before, self.sender.effects
        if level not in self._undisturbed:
            return
        if (
            call is None
            or last is None
            or tables is None
            or not is_led_to(call, last, tables, effects, self.cluster.happenings)
        ):
            self._undisturbed.discard(level)
        elif decided.withdrawn:
            raise Broken(22, f"{level} withdraws {decided.withdrawn}, although only its own writes were seen")

    def _raise(self) -> None:
        if self._broken:
            raise self._broken[0]

    def _check_held(self, worker: Worker, partitions: set[int]) -> None:
        epochs = self._epochs
        if any(worker.epochs.get(partition) != epochs[partition] for partition in partitions):
            raise Broken(10, f"{worker.owner} committed for {sorted(partitions)} under {worker.epochs}, not {epochs}")

    def _check_due_times(self, decided: Sequence[Decided]) -> None:
        for each in decided:
            if each.due_at is None or self.now < each.due_at <= latest(self.now):
                continue
            # a level whose time came while a record asked for it is not called for that, but in the next batch
            if each.is_evaluated or each.due_at > self.now:
                raise Broken(6, f"{named_level(*each.name)} is due again at {each.due_at}, it is {self.now}")

    def _check_lost(self, worker: Worker) -> None:
        if all(self._epochs[partition] == epoch for partition, epoch in worker.epochs.items()):
            raise Broken(10, f"{worker.owner} lost no lease, but could not commit")
        worker.forget_leases()

    def set_clock(self, name: str, minutes: float) -> None:
        """Set the clock of a processor's machine, so far ahead of the database's."""
        self.workers[name].skew = timedelta(minutes=minutes)
