"""Invariant 3 after a change of code: the tables equal those that the new code folds from the beginning."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from levelog.operator import Operator
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import LoggedRecord
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.tables import index_entries, objects
from rigs.migrated import migrate
from rigs.run.examples import examples
from rigs.versions import Versions
from rigs.webs import deleted, logged, pod

VERSIONS: Final = (
    (),
    (("yield owner, pod.spec.containers[0].image", "yield owner._replace(uid=pod.metadata.name), pod.metadata.name"),),
    (("@op.index\ndef images", '@op.index(labels={"app": "web"})\ndef images'),),
    (("yield owner, pod.metadata.name", "yield owner, pod.metadata.name.upper()"),),
)

_operators: dict[int, Operator] = {}

changes = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["a", "b", "gone"]),
        st.sampled_from(["", "one", "two"]),
        st.sampled_from(["web", "db"]),
    ),
    max_size=20,
)


def operator_of(version: int) -> Operator:
    if not _operators:
        versions = Versions(Path(tempfile.mkdtemp()))
        _operators.update({number: versions.load(*each) for number, each in enumerate(VERSIONS)})
    return _operators[version]


def records_of(given_changes: Sequence[tuple[int, str, str, str]]) -> list[LoggedRecord]:
    records: list[Any] = []
    for number, (name, image, owner, app) in enumerate(given_changes, start=1):
        seen = pod(f"pod{name}", number, owner=owner, image=image, labels={"app": app})
        records.append(deleted(seen, number) if image == "gone" else seen)
    return logged(records)


async def ran(folder: Path, name: str, versions: Sequence[tuple[int, Sequence[LoggedRecord], bool]]) -> list[Any]:
    """Entries and objects after each version has folded its records, or was killed before it wrote any."""
    url = f"sqlite:///{folder / name}.db"
    await migrate(url)
    async with await Database.open(url, is_scratch=True) as database:
        for version, records, is_killed in versions:
            program = Program([operator_of(version)])
            scope = await open_scope(
                database,
                cluster=Cluster("c"),
                application=Application("webs"),
                partitions=4,
                stream_created="s",
                fingerprint=program.fingerprint,
                code=program.handlers,
            )
            engine = Engine(SqlTables(database, scope), program, patience=None)
            await engine.load(await Leases(database, scope, owner=f"{name}{version}").tend())
            if is_killed:
                continue
            engine.fold(records)
            await engine.flush()
        async with database.reading() as connection:
            entries = (await connection.execute(index_entries.select())).all()
            held = (await connection.execute(objects.select())).all()
    return [sorted(map(tuple, entries)), sorted(map(tuple, held))]


@settings(max_examples=examples(15), deadline=None)
@given(changes, changes, changes, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_invariant_3_tables_of_changed_code_equal_those_that_it_folds_from_the_beginning(
    first: list[Any], second: list[Any], third: list[Any], codes: list[int]
) -> None:
    records = records_of([*first, *second, *third])
    cuts = len(first), len(first) + len(second)
    versions = [
        (codes[0], records[: cuts[0]], False),
        (codes[1], records[cuts[0] : cuts[1]], False),
        (codes[2], (), True),
        (codes[3], records[cuts[1] :], False),
    ]
    with tempfile.TemporaryDirectory() as folder:
        changed = asyncio.run(ran(Path(folder), "changed", versions))
        scratch = asyncio.run(ran(Path(folder), "scratch", [(codes[3], records, False)]))
    assert changed == scratch
