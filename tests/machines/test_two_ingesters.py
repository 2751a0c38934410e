"""Two ingesters of one resource, paused and killed at any moment, and the fold of what they have written together."""

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from levelog.wire.objects import Application
from levelog_processors.fold.batches import Folder
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.tables import objects, syncs
from rigs.machine.cluster import WEBS, Happening, key_of
from rigs.machine.ingesters import Ingester, Server
from rigs.machine.log import CLUSTER, PARTITIONS, Log
from rigs.machine.world import Laboratory

NAMES = ("a", "b", "c")
Step = tuple[str, str]

happens = st.tuples(st.sampled_from(("create", "change", "delete", "recreate")), st.sampled_from(NAMES))
tells = st.tuples(st.sampled_from(("one", "other", "one", "other", "one", "other")), st.just(""))
breaks = st.tuples(st.sampled_from(("kill one", "kill other", "compact")), st.just(""))
runs = st.lists(st.one_of(tells, happens, tells, tells, breaks, tells), min_size=20, max_size=60)


class Run:
    """A server, two ingesters and what a fold makes of their log, in batches of a few records."""

    def __init__(self) -> None:
        self.server = Server()
        self.log = Log()
        self.ingesters = {name: Ingester(name, self.server, self.log) for name in ("one", "other")}

    def take(self, step: Step) -> None:
        match step:
            case ("one" | "other") as who, _:
                self.ingesters[who].step()
            case "compact", _:
                self.server.compacted_to = self.server.revision
            case ("kill one" | "kill other") as what, _:
                self.ingesters[what.removeprefix("kill ")].kill()
            case what, name:
                self._happen(what, name)

    def end(self) -> None:
        """Both are killed; one begins again and tells everything."""
        for ingester in self.ingesters.values():
            ingester.kill()
        last = self.ingesters["one"]
        last.step()
        while not last.is_idle:
            last.step()

    def _happen(self, what: str, name: str) -> None:
        is_there = key_of(WEBS, name) in self.server.objects
        if what in ("delete", "recreate") and is_there:
            self.server.delete(WEBS, name)
        if what in ("create", "recreate") and key_of(WEBS, name) not in self.server.objects:
            self.server.create(WEBS, name, {})
        if what == "change" and is_there:
            self.server.change(WEBS, name, lambda body: body.update(spec={"at": self.server.revision}))


async def fold(laboratory: Laboratory, name: str, run: Run, size: int) -> None:
    """Fold the log and see, batch by batch, that nothing goes back or is deleted while it exists."""
    scope = await open_scope(
        laboratory.database,
        cluster=CLUSTER,
        application=Application(name),
        partitions=PARTITIONS,
        stream_created="stream",
        fingerprint=laboratory.program.fingerprint,
    )
    epochs = await Leases(laboratory.database, scope, owner="folder").tend()
    folder = Folder(laboratory.database, scope, laboratory.program)
    held: dict[str, tuple[str, int]] = {}
    for start in range(0, len(run.log.records), size):
        await folder.fold(epochs, run.log.records[start : start + size])
        async with laboratory.database.reading() as connection:
            table = objects.c
            rows = await connection.execute(
                select(table.object, table.uid, table.version).where(table.scope == scope.number)
            )
            now = {name: (uid, version) for name, uid, version in rows}
        for known, (uid, version) in held.items():
            assert now.get(known, (uid, version))[1] >= version
            assert known in now or was_deleted(run.server.happenings, uid)
        held = now
    assert held == {
        str(key): (body["metadata"]["uid"], int(body["metadata"]["resourceVersion"]))
        for key, body in run.server.objects.items()
    }
    async with laboratory.database.reading() as connection:
        listed = select(syncs.c.finished_sequence).where(syncs.c.scope == scope.number)
        assert all((await connection.execute(listed)).scalars())


def was_deleted(happenings: Iterable[Happening], uid: str) -> bool:
    return any(happening.is_deletion and happening.uid == uid for happening in happenings)


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.long)])
def test_invariant_2_records_and_lists_of_two_ingesters_interleave_without_harm(
    sqlite_laboratory: Laboratory, examples: int
) -> None:
    number = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(runs, st.sampled_from((4, 15, 60)))
    def holds(steps: list[Step], size: int) -> None:
        nonlocal number
        number += 1
        run = Run()
        for step in steps:
            run.take(step)
        run.end()
        sqlite_laboratory.run(fold(sqlite_laboratory, f"two-{number}", run, size))

    holds()
