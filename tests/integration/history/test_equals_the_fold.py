"""Invariants 2 and 3 for history: the last revisions are the objects that the tables hold."""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog_base.wire.objects import Version
from levelog_base.wire.records import ControlRecord, LoggedRecord, ObjectDeleted, ObjectSeen, SyncFinished, SyncStarted
from levelog_cli.loading import load_operators
from levelog_history.revisions import Revision, Revisions
from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.state.state import State
from rigs.levelog import WEBS_FILE
from rigs.run.examples import examples
from rigs.webs import NOON, WEBS, deleted, logged, web

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["see", "see", "list", "delete", "start", "finish"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 8),
        st.sampled_from(["", "", "other"]),
    ),
    max_size=30,
)


def records_of(steps: Sequence[tuple[str, str, int, str]]) -> list[LoggedRecord]:
    records: list[ObjectSeen | ObjectDeleted | ControlRecord] = []
    for step, name, version, other in steps:
        seen = web(name, version, uid=other)
        match step:
            case "start":
                records.append(
                    SyncStarted(resource=WEBS, sync_id=name, namespaces=(other,) if other else (), time=NOON)
                )
            case "finish":
                records.append(
                    SyncFinished(
                        resource=WEBS,
                        sync_id=name,
                        namespaces=(other,) if other else (),
                        version=Version(version),
                        time=NOON,
                    )
                )
            case "delete":
                records.append(deleted(seen, version))
            case _:
                records.append(replace(seen, origin="list" if step == "list" else "watch"))
    return logged(records, partitions=1)


def folded(records: list[LoggedRecord], size: int) -> dict[str, tuple[str, int]]:
    state = State(Program(load_operators([WEBS_FILE])), "webs", 1)
    for start in range(0, len(records), size):
        for part in parts(records[start : start + size]):
            state.apply(state.fold(part))
    return {name: (row.uid, row.version) for name, row in state.objects.items()}


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, st.integers(1, 30))
@example([("see", "b", 5, ""), ("start", "b", 1, ""), ("finish", "b", 7, ""), ("finish", "b", 8, "")], 4)
def test_invariant_3_the_last_revisions_are_what_the_tables_hold(steps: list[Any], size: int) -> None:
    records = records_of(steps)
    revisions = Revisions(lambda _: True)
    last = {entry.object: entry for each in records for entry in revisions.take(each) if isinstance(entry, Revision)}
    there = {name: (entry.uid, entry.version) for name, entry in last.items() if not entry.is_gone}
    assert there == folded(records, size)
