"""Two ingesters of one resource, paused and killed at any moment, and the fold of what they have written together.

Lists end early, and the server is restored to what it was. Each bug that is planted into that is found within a stated
number of runs; as with the machine's, the steps are kept, and `LEVELOG_TEST_KEEP=1 pytest -m long` keeps others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from levelog_base.wire.records import (
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
)
from levelog_processors.fold.batches import parts
from levelog_processors.state.state import State
from rigs.machine import bugs
from rigs.machine.bugs import Bug, planted
from rigs.machine.cluster import WEBS, key_of
from rigs.machine.ingesters import Ingester, Server
from rigs.machine.laboratory import Laboratory
from rigs.machine.log import PARTITIONS, Log
from rigs.machine.planting import keep_steps, kept_steps
from rigs.run.examples import short_or_whole

NAMES = ("a", "b", "c")
Step = tuple[str, str]

happens = st.tuples(st.sampled_from(("create", "change", "delete", "recreate")), st.sampled_from(NAMES))
tells = st.tuples(st.sampled_from(("one", "other", "one", "other", "one", "other")), st.just(""))
breaks = st.tuples(
    st.sampled_from(("kill one", "kill other", "compact", "end one", "end one", "restore 1", "restore 3")), st.just("")
)
runs = st.lists(st.one_of(tells, happens, tells, tells, breaks, tells), min_size=20, max_size=60)
sizes = st.sampled_from((4, 15, 60))
"""Records of a batch."""

PLANTED: Final[dict[Bug, int]] = {
    bugs.half_seen_list_continued: 60,
    bugs.history_not_asked_for: 40,
    bugs.reverted_list_compared: 40,
    bugs.readers_not_blocked: 40,
}
"""Each bug, and the number of runs within which it is found."""


class Run:
    """A server, two ingesters and what a fold makes of their log, in batches of a few records."""

    def __init__(self) -> None:
        self.server = Server()
        self.log = Log()
        self.gone: set[str] = set()
        """Uids that were deleted, or lost by a restore."""
        self.ingesters = {name: Ingester(self.server, self.log) for name in ("one", "other")}

    async def take(self, step: Step) -> None:
        match step:
            case ("one" | "other") as who, _:
                await self.ingesters[who].step()
            case "end one", _:
                await self.ingesters["one"].step(ends=True)
            case "compact", _:
                self.server.compacted_to = self.server.revision
            case ("kill one" | "kill other") as what, _:
                await self.ingesters[what.removeprefix("kill ")].kill()
            case ("restore 1" | "restore 3") as what, _:
                await self._restore(self.server.revision - int(what.removeprefix("restore ")))
            case what, name:
                self._happen(what, name)

    async def end(self) -> None:
        """Both are killed; one begins again and tells everything."""
        await self.close()
        last = self.ingesters["one"]
        for _ in range(100):
            await last.step()
            if last.is_idle:
                break
        else:
            raise AssertionError("it never comes to an end")
        await self.close()

    async def close(self) -> None:
        for ingester in self.ingesters.values():
            await ingester.kill()

    async def _restore(self, revision: int) -> None:
        """Go back; it is asked for before the old version is reached again, without which nobody could tell.

        One of the two is killed with it. See docs/critiques.md for two that live, and for lists that are half told.
        """
        if revision < 1 or self._recorded_to() > revision >= self.ingesters["one"].resume().seen:
            return
        await self.ingesters["other"].kill()
        is_behind = self.log.records != [] and not self.ingesters["one"].is_idle
        self.gone |= self._uids()
        self.server.restore(revision)
        if is_behind:
            await self.ingesters["one"].kill()  # the log knows more than it has seen
        one = self.ingesters["one"]
        for _ in range(4):  # one that has seen nothing does not ask
            if one.asked_at < self.server.restores:
                await one.step()

    def _happen(self, what: str, name: str) -> None:
        is_there = key_of(WEBS, name) in self.server.objects
        if what in ("delete", "recreate") and is_there:
            self.gone.add(self.server.uid(WEBS, name))
            self.server.delete(WEBS, name)
        if what in ("create", "recreate") and key_of(WEBS, name) not in self.server.objects:
            self.server.create(WEBS, name, {})
        if what == "change" and is_there:
            self.server.change(WEBS, name, lambda body: body.update(spec={"at": self.server.revision}))
        for ingester in self.ingesters.values():
            ingester.is_idle = False

    def _recorded_to(self) -> int:
        """The highest version of an object in the log, of the history that is going on."""
        highest = 0
        for logged in self.log.records:
            match logged.record:
                case HistoryReverted():
                    highest = 0
                case ObjectSeen(version=version) | ObjectDeleted(version=version):
                    highest = max(highest, version)
                case _:
                    pass
        return highest

    def _uids(self) -> set[str]:
        return {body["metadata"]["uid"] for body in self.server.objects.values()}


def fold(laboratory: Laboratory[Any], run: Run, size: int) -> None:
    """Fold the log and see, batch by batch, that nothing goes back or is deleted while it exists."""
    state = State(laboratory.program, "folder", PARTITIONS)
    held: dict[str, tuple[str, int]] = {}
    for start in range(0, len(run.log.records), size):
        batch = run.log.records[start : start + size]
        for part in parts(batch):
            state.apply(state.fold(part))
        now = {name: (row.uid, row.version) for name, row in state.objects.items()}
        listed = {row.partition for row in state.syncs.values() if row.finished_sequence > 0}
        assert listed == listed_after(run.log.records[: start + size])
        is_other_history = any(isinstance(logged.record, HistoryReverted) for logged in batch)
        for known, (uid, version) in held.items():
            assert is_other_history or now.get(known, (uid, version))[1] >= version
            assert known in now or uid in run.gone
        held = now
    assert held == {
        str(key): (body["metadata"]["uid"], int(body["metadata"]["resourceVersion"]))
        for key, body in run.server.objects.items()
    }
    assert listed_after(run.log.records) == set(range(PARTITIONS))


def listed_after(records: Iterable[LoggedRecord]) -> set[int]:
    """Partitions in which a list ended that began in the history that is going on."""
    begun: set[tuple[int, str]] = set()
    listed: set[int] = set()
    for logged in records:
        match logged.record:
            case HistoryReverted():
                begun = {each for each in begun if each[0] != logged.partition}
                listed.discard(logged.partition)
            case SyncStarted(sync_id=sync_id):
                begun.add((logged.partition, sync_id))
            case SyncFinished(sync_id=sync_id) if (logged.partition, sync_id) in begun:
                listed.add(logged.partition)
            case _:
                pass
    return listed


async def take(laboratory: Laboratory[Any], name: str, steps: Sequence[Step], size: int) -> None:
    run = Run()
    try:
        for step in steps:
            await run.take(step)
        await run.end()
    finally:
        await run.close()
    fold(laboratory, run, size)


def search(laboratory: Laboratory[Any], examples: int) -> list[tuple[list[Step], int]]:
    """Take runs; returns them. The last one is what an error is of."""
    taken: list[tuple[list[Step], int]] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(runs, sizes)
    def holds(steps: list[Step], size: int) -> None:
        taken.append((steps, size))
        laboratory.run(take(laboratory, f"two-{len(taken)}", steps, size))

    try:
        holds()
    except AssertionError as error:
        raise Failed(taken) from error
    return taken


class Failed(AssertionError):
    """The last of some runs broke something."""

    def __init__(self, taken: list[tuple[list[Step], int]]) -> None:
        super().__init__(f"run {len(taken)} breaks something: {taken[-1]}")
        self.taken = taken


each_bug = pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)


def test_invariant_2_records_and_lists_of_two_ingesters_interleave_without_harm(
    sqlite_laboratory: Laboratory[Any],
) -> None:
    search(sqlite_laboratory, short_or_whole(8, 60))


@each_bug
def test_a_bug_planted_into_lists_is_found_by_the_steps_that_are_kept(
    sqlite_laboratory: Laboratory[Any], bug: Bug
) -> None:
    steps, size = kept_steps("ingesters", bug)
    steps = [(what, name) for what, name in steps]
    sqlite_laboratory.run(take(sqlite_laboratory, "sound", steps, size))
    with planted(bug, sqlite_laboratory), pytest.raises(AssertionError):
        sqlite_laboratory.run(take(sqlite_laboratory, "planted", steps, size))


@pytest.mark.long
@each_bug
def test_a_bug_planted_into_lists_is_found_within_so_many_runs(sqlite_laboratory: Laboratory[Any], bug: Bug) -> None:
    with planted(bug, sqlite_laboratory), pytest.raises(Failed) as failed:
        search(sqlite_laboratory, PLANTED[bug])
    keep_steps("ingesters", bug, failed.value.taken[-1])
