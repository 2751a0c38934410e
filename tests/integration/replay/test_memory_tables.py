"""In memory, rounds, intents and decisions change as the rows of the tables do: both lead to the same decisions."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Intent, Level, Operator, Resource, apply, call
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application, Cluster, ObjectKey, Uid, Version
from levelog_base.wire.records import CallNoted, HistoryReverted, LoggedRecord, ObjectSeen, ReceiptNoted, TargetObserved
from levelog_base.wire.subjects import partition_of
from levelog_cli.loading import load_operators
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_replay.inorder import LogReplay
from levelog_replay.travel.edits import PastWrites
from levelog_store.decide.decisions import Decided, IntentRow
from levelog_store.rows import Origin
from rigs.histories import Told, Web
from rigs.inorder import decided_in_order
from rigs.levelog import WEBS_FILE
from rigs.run.examples import examples
from rigs.webs import NOON, PODS, WEBS, deleted, lists_done, logged, receipt, seen, web

PARTITIONS: Final = 2
Story: TypeAlias = Sequence[tuple[str, int, int]]
"""What happens next, to which Web or write, and how."""
told = Operator("told")


class Pod(Resource, version="v1", plural="pods"):
    spec: dict[str, Any]


@told.on.create
@told.on.update
@told.on.delete
def tell(web: Web) -> str:
    return web.spec.image


@told.view
def noted(web: Web) -> Level[str]:
    return Level(desired=web.spec.image, actual="")


@told.reconcile(noted, writes={Pod: ["apply"]})
def note(web: Web) -> Iterator[Intent]:
    """Applies again and again, at times less than before, what may be there already."""
    annotations = {"annotations": {"a": "b"}} if web.spec.replicas % 2 else {}
    metadata = {"name": f"{web.metadata.name}-note", **annotations}
    yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})


class Happening:
    """A history that is written while it is decided on, so that it has receipts of what is decided."""

    def __init__(self, story: Story) -> None:
        self.origin = Origin(cluster=Cluster("cluster"), application=Application("webs"), partitions=PARTITIONS)
        self.first, self.last = 1, 0
        self.records_so_far: list[LoggedRecord] = []
        self.asked: list[tuple[Decided, IntentRow]] = []
        self._story = story
        self._version = 1
        self._there: dict[str, ObjectSeen] = {}
        self._incarnation = 1

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        for resource in (WEBS, PODS):
            for mark in lists_done(resource, 1):
                for partition in range(PARTITIONS):
                    yield self._logged(mark, partition)
        for what, which, how in self._story:
            self._version += 1
            for record in getattr(self, what)(which, how):
                if isinstance(record, HistoryReverted):
                    marks = lists_done(record.resource, self._version)
                    for each in (record, *(replace(mark, sync_id=str(self._version)) for mark in marks)):
                        for partition in range(PARTITIONS):
                            yield self._logged(each, partition)
                    continue
                key = record.parent if isinstance(record, ReceiptNoted | TargetObserved) else record.key
                yield self._logged(record, partition_of(key, PARTITIONS))

    def _logged(self, record: Any, partition: int) -> LoggedRecord:
        number = len(self.records_so_far) + 1
        at = replace(record, time=NOON + timedelta(seconds=number))
        [one] = logged([at], first=number, partitions=PARTITIONS, partition=partition)
        self.records_so_far.append(one)
        return one

    def wish(self, which: int, how: int) -> list[Any]:
        """A Web asks for other pods, or is being deleted."""
        name, (replicas, image) = f"web{which % 2}", divmod(how, 2)
        values: dict[str, Any] = {"replicas": replicas % 3, "image": "ab"[image], "uid": f"{name}-{self._incarnation}"}
        values["creationTimestamp"] = "2026-01-01T00:00:00Z"
        if how == 13:
            values["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        wished = web(name, self._version, **values)
        self._there[str(wished.key)] = wished
        return [wished]

    def end(self, which: int, how: int) -> list[Any]:
        """Something is deleted by hand; what comes later may be another incarnation."""
        if not self._there:
            return []
        self._incarnation += how % 2
        name = sorted(self._there)[-1 - which % len(self._there)]
        return [deleted(self._there.pop(name), self._version)]

    def answer(self, which: int, how: int) -> list[Any]:
        """A write that was decided comes to something, which the log shows before, after, or not at all."""
        if not self.asked:
            return []
        decided, row = self.asked[-1 - which % len(self.asked)]
        outcome = ("written", "written", "written", "failed", "conflict", "gone", "unchanged")[how % 7]
        values: dict[str, Any] = {"key": row.key, "verb": row.verb, "target": row.target, "round": row.round}
        values |= {"view": decided.wake.view, "parent": decided.wake.parent, "parent_uid": decided.level.parent_uid}
        error = "no" if outcome in ("failed", "conflict") else ""
        found = receipt(
            {**values, "owner": "", "attempts": 1 + how // 7}, outcome=outcome, version=self._version, error=error
        )
        if row.verb == "call":
            return [
                found if error else replace(found, call=CallNoted(request=msgspec.json.decode(row.body), result=None))
            ]
        shown = self._shown(row) if outcome == "written" else []
        return [[*shown, found], [found, *shown], [found]][which % 3]

    def _shown(self, row: IntentRow) -> list[Any]:
        if row.verb == "delete":
            held = self._there.pop(row.target, None)
            return [deleted(held, self._version)] if held is not None else []
        key, manifest = ObjectKey.parse(row.target), msgspec.json.decode(row.body)
        told = {name: value for name, value in manifest["metadata"].items() if name not in ("name", "namespace")}
        self._there[row.target] = seen(key, self._version, f"uid-{key.name}", manifest["spec"], **told)
        return [self._there[row.target]]

    def observation(self, which: int, how: int) -> list[Any]:
        """An actuator looked up what it had written."""
        if not self.asked:
            return []
        decided, row = self.asked[-1 - which % len(self.asked)]
        return [
            TargetObserved(
                application="webs",
                key=row.key,
                view=decided.wake.view,
                parent=ObjectKey.parse(decided.wake.parent),
                parent_uid=Uid(decided.level.parent_uid),
                target=ObjectKey.parse(row.target),
                target_version=self._version if how % 2 else 0,
                time=NOON,
            )
        ]

    def reverted(self, which: int, _: int) -> list[Any]:
        """The cluster is restored from a backup, and has nothing."""
        self._there.clear()
        resource = (WEBS, PODS)[which % 2]
        at = Version(self._version)
        return [HistoryReverted(resource=resource, since=at, version=at, time=NOON)]


STORIES = st.lists(
    st.tuples(
        st.sampled_from(["wish"] * 4 + ["answer"] * 8 + ["end", "end", "observation", "reverted"]),
        st.integers(0, 5),
        st.integers(0, 13),
    ),
    min_size=3,
    max_size=40,
)

LEFT_OUT: Final[Story] = [("wish", 0, 2), *(("answer", which, 0) for which in (0, 1, 3, 4)), ("wish", 0, 4)]
"""An apply names a field less than the one before, while the object has it."""
CALLED_AGAIN: Final[Story] = [
    ("wish", 3, 0),
    ("reverted", 0, 0),
    ("wish", 1, 11),
    ("answer", 2, 12),
    ("answer", 0, 0),
    ("reverted", 0, 0),
]
"""A call is asked for again, under its key, after it has ended."""


def program() -> Program:
    return Program([*load_operators([WEBS_FILE]), told])


async def happened(story: Story) -> list[LoggedRecord]:
    """The records of a story."""
    happening = Happening(story)
    replay = LogReplay(happening, program(), redactor=Redactor())
    engine: Engine = getattr(replay, "_engine")  # noqa: B009
    decide = engine.decide

    async def noting(**values: Any) -> EvaluationBatch:
        found = await decide(**values)
        happening.asked += [(each, row) for each in found.decided for row in each.intents]
        return found

    with patch.object(engine, "decide", noting):
        async for _ in replay.run():
            pass
    await replay.close()
    return happening.records_so_far


@pytest.mark.parametrize("is_claimed", [False, True])
@settings(max_examples=examples(60), deadline=None)
@example(story=LEFT_OUT)
@example(story=CALLED_AGAIN)
@given(story=STORIES)
def test_invariant_12_what_is_decided_in_memory_is_decided_on_the_tables(is_claimed: bool, story: Story) -> None:
    async def both() -> tuple[bytes, bytes]:
        records = await happened(story)
        history = Told(records)
        claimant = await PastWrites.read(history) if is_claimed else None
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'levelog.db'}"
            return (
                await decided_in_order(program(), history, claimant=claimant),
                await decided_in_order(program(), history, url, claimant=claimant),
            )

    one, other = asyncio.run(both())
    assert one == other


asking = Operator("asking")


@asking.effect
def send(request: str) -> None:
    """Nobody calls it."""


@asking.view(labels={"tier": "gold"})
def wanted(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=0)


@asking.reconcile(wanted)
def ask(web: Web, level: Level[int]) -> Iterator[Intent]:
    yield call(send, web.spec.image)


def gold(version: int) -> ObjectSeen:
    """Of each version a call is asked for again, with the same request."""
    return web("a", version, replicas=version, labels={"tier": "gold"})


async def test_invariant_7_no_round_comes_twice_after_a_call_that_went_on_in_a_later_one(tmp_path: Path) -> None:
    """The Web leaves the view in between, and nothing is decided before it is back."""
    seen = [gold(2), gold(3), web("a", 4), gold(5)]
    marks = [(mark, partition) for mark in lists_done(WEBS, 1) for partition in range(PARTITIONS)]
    records: list[LoggedRecord] = []
    for number, (each, of) in enumerate([*marks, *((each, partition_of(each.key, PARTITIONS)) for each in seen)], 1):
        at = replace(each, time=NOON + timedelta(seconds=number))
        records += logged([at], first=number, partitions=PARTITIONS, partition=of)
    history, url = Told(records), f"sqlite:///{tmp_path / 'levelog.db'}"
    one, other = [await decided_in_order(Program([asking]), history, each) for each in ("", url)]
    assert [each["round"] for each in msgspec.json.decode(one)] == [1, 2, 3]
    assert one == other
