"""What the log has no more, or never had: bodies that were left out, expired history, and lost logs."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Level, Operator
from levelog_base.wire.objects import Version
from levelog_base.wire.records import HistoryReverted, LoggedRecord
from levelog_base.wire.subjects import partition_of
from levelog_history.reach import Moment
from levelog_processors.program import Program
from levelog_replay import tape
from levelog_replay.bundles.needed import Needed
from levelog_replay.tape import Rebuilt, Tape
from levelog_sandbox import Sandbox
from rigs.histories import CHANGES, PARTITIONS, Changes, Told, Web, images, told
from rigs.kinds import manifest
from rigs.levelog import WEBS_FILE, Levelog, define_webs
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.run.examples import examples
from rigs.waiting import until
from rigs.webs import NOON, WEBS, lists_done, logged, pod, web

SHOP = "webs.example.com/default/shop"


class Expired:
    """An application whose log begins in the middle of its life."""

    def __init__(self, levelog: Levelog, env: dict[str, str]) -> None:
        self.levelog = levelog
        self.env = env
        self.first = self.begins = self.scaled = self.last = 0
        """The first record; the end of the first complete list; the record that asks for five; the last."""

    async def json(self, *arguments: str | Path, status: int = 0) -> Any:
        ended = await self.levelog.ends(*arguments, "--json", env=self.env)
        assert ended.status == status, ended
        return json.loads(ended.stdout)


@pytest_asyncio.fixture
async def expired(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Expired]:
    url = f"sqlite:///{tmp_path}/levelog.db"
    env = {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
    told = Expired(Levelog(tmp_path), env)
    async with Processing(nats_server.url, url) as stack:
        pods = [pod(f"shop-{n}", 2 + n, owner="uid-shop") for n in range(2)]
        await stack.begin(web("shop", 1, replicas=2), *pods, version=5)
        last = await stack.tell(web("shop", 6, replicas=3))
        await stack.folded(last)
        await stack.expire(last)
        told.first = await stack.tell(web("shop", 20, replicas=4))
        await stack.folded(told.first)
        told.begins = await stack.listed(web("shop", 20, replicas=4), *pods, version=30)
        await stack.folded(told.begins)
        told.scaled = await stack.tell(web("shop", 31, replicas=5))
        await stack.folded(told.scaled)
        told.last = await stack.tell(pod("shop-2", 32, owner="uid-shop"))
        await stack.folded(told.last)
        yield told


async def test_a_moment_that_has_expired_is_refused_with_the_first_that_can_be_given(expired: Expired) -> None:
    log_begins = f"is before the log begins: its first record is {expired.first}, of "
    history_begins = f"is before history begins: what was before sequence {expired.begins} ("
    bundle = expired.levelog.folder / "all.jsonl"
    written = await expired.levelog.ends("export", bundle, env=expired.env)
    assert written.status == 0, written
    cases: list[tuple[tuple[str | Path, ...], str, str]] = [
        (("history", SHOP, "--at"), "1", log_begins),
        (("why", SHOP, "--at"), "1", log_begins),
        (("why", SHOP, "--at"), "2000-01-01", log_begins),
        (("levels", "--at"), str(expired.first), history_begins),
        (("replay", WEBS_FILE, "--from"), "1", history_begins),
        (("replay", WEBS_FILE, "--bundle", bundle, "--from"), str(expired.first), history_begins),
        (("export", "new.jsonl", "--from"), "1", history_begins),
        (("export", "new.jsonl", "--to"), str(expired.last + 1), f"the log ends at sequence {expired.last}, before"),
        (("replay", WEBS_FILE, "--bundle", bundle, "--to"), "99999", f"the log ends at sequence {expired.last}"),
    ]
    for arguments, moment, sentence in cases:
        said = await expired.levelog.refused(*arguments, moment, status=2, env=expired.env)
        assert sentence in said, (arguments, moment)
    assert not (expired.levelog.folder / "new.jsonl").exists()


async def test_what_is_known_since_is_shown_and_decided_again(expired: Expired) -> None:
    found = await expired.json("replay", WEBS_FILE, "--from", str(expired.begins))
    assert (found["is_same"], found["obstacles"]) == (True, {})
    since = found["views"]["webs/pods"]["same"]
    assert since >= 2, "of the record that asks for five, and of the pod"
    found = await expired.json("replay", WEBS_FILE)
    tally = found["views"]["webs/pods"]
    assert (tally["same"], tally["changed"], found["is_same"]) == (since, 0, True)
    [(obstacle, skipped)] = found["obstacles"].items()
    assert obstacle.startswith("history begins later")
    assert tally["skipped"] == skipped >= 2
    [level] = await expired.json("levels", "--at", str(expired.scaled))
    assert len(level["desired"]) == 5
    then = await expired.levelog.ends("history", SHOP, "--at", str(expired.begins), env=expired.env)
    assert "replicas: 4" in then.stdout, then
    bundle = expired.levelog.folder / "since.jsonl"
    written = await expired.levelog.ends("export", bundle, "--from", str(expired.begins), env=expired.env)
    assert written.status == 0, written
    found = await expired.json("replay", WEBS_FILE, "--bundle", bundle)
    assert (found["views"]["webs/pods"]["same"], found["obstacles"]) == (since, {})


async def test_what_there_is_nothing_of_is_not_exported(expired: Expired) -> None:
    for arguments, sentence in (
        (("--object", "webs.example.com/default/none"), "recorded on webs.example.com/default/none: `levelog levels`"),
        (("--object", "a/b/c/d"), "names no objects"),
        (("--from", "soon"), "is no moment"),
        (("--from", str(expired.scaled), "--to", str(expired.begins)), "is after --to"),
        (("--application", "none"), "holds no such application"),
    ):
        said = await expired.levelog.refused("export", "new.jsonl", *arguments, status=2, env=expired.env)
        assert sentence in said, arguments
    (expired.levelog.folder / "there.jsonl").write_text("")
    assert "is there already" in await expired.levelog.refused("export", "there.jsonl", status=2, env=expired.env)


op = Operator("webs")
op.index(images)


@op.view
def pods(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=web.spec.replicas)


def shown(rebuilt: Rebuilt) -> list[Any]:
    """All that tells of objects."""
    state = rebuilt.state
    return [state.objects, state.buckets.by_key, state.syncs, state.tombstones]


async def folded(records: Sequence[LoggedRecord], moments: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """State at the end, folded record by record and up to some moments."""
    history = Told(records)
    one, other = Rebuilt(Program([op]), history.origin), Rebuilt(Program([op]), history.origin)
    for each in records:
        one.fold([each])
    read = Tape(history, [other])
    for moment in (*sorted(moments), history.last):
        await read.fold_up_to([moment] * PARTITIONS)
    assert read.records == len(records)
    assert not other.state.wakes.pending, "what was decided is known"
    return shown(one), shown(other)


@settings(max_examples=examples(15), deadline=None)
@given(CHANGES, st.lists(st.integers(0, 25), max_size=3), st.sampled_from([0, 5000, 2**26]))
def test_invariant_3_state_is_the_same_however_records_fall_into_batches(
    changes: Changes, moments: Sequence[int], window: int
) -> None:
    with patch.object(tape, "WINDOW_BYTES", window):
        one, other = asyncio.run(folded(told(changes), moments))
    assert one == other


def test_invariant_3_entries_are_kept_where_the_next_version_makes_the_index_raise() -> None:
    changes = [("seen", "shop", 1, "a", 1), ("seen", "shop", 1, "b", 2), ("seen", "shop", 1, "bad", 1)]
    one, other = asyncio.run(folded(told(changes), []))
    assert one == other
    assert list(other[1]["webs/images", '"b"'].values()) == [b"2"]


async def cut_off(records: Sequence[LoggedRecord], start: int, behind: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """State at a moment and at the end: of all records, and of those that a bundle which begins there has."""
    history = Told(records)
    folded = [max(start - each, 0) for each in behind]
    needed = await Needed.find(history, Moment(sequence=start), folded, (), history.last)
    found: list[list[Any]] = []
    for each in (records, [record for record in records if needed.has(record)]):
        rebuilt = Rebuilt(Program([op]), history.origin)
        before = [record for record in each if record.sequence <= folded[record.partition]]
        rebuilt.fold(before)
        at = deepcopy(shown(rebuilt))
        rebuilt.fold(record for record in each if record not in before)
        found.append([*at[:-1], *shown(rebuilt)[:-1]])
    return found[0], found[1]


@settings(max_examples=examples(60), deadline=None)
@given(CHANGES, st.integers(1, 40), st.lists(st.integers(0, 8), min_size=2, max_size=2))
def test_what_was_replaced_before_a_bundle_begins_is_not_missed(
    changes: Sequence[tuple[str, str, int, str, int]], start: int, behind: Sequence[int]
) -> None:
    fine = [(*each[:3], "a" if each[3] == "bad" else each[3], each[4]) for each in changes]
    one, other = asyncio.run(cut_off(told(fine), start, behind))
    assert one == other


async def test_a_bundle_begins_with_what_there_was() -> None:
    changes = [("seen", name, 1, "a", number) for number in range(4) for name in ("shop", "blog")]
    records = told([*changes[:4], ("deleted", "blog", 1, "a", 1), *changes[4:]])
    history = Told(records)
    needed = await Needed.find(history, Moment(sequence=6), [9, 9], (), len(records) - 1)
    assert history.ended == history.reads  # else the reader of a log would stay open
    assert [int(each.sequence) for each in records if needed.has(each)] == [5, 6, 7, 8, 9]
    assert needed.begins.sequence == 6


@pytest.mark.parametrize("is_reverted", [False, True])
async def test_a_list_that_the_fold_passes_over_leaves_nothing_out_of_a_bundle(is_reverted: bool) -> None:
    """A list in an older API version, by a process that does not know the newer one; or of a history that went back."""
    key = web("shop", 11).key
    partition = partition_of(key, PARTITIONS)
    (first, last), (begun, ended) = lists_done(WEBS, 10), lists_done(WEBS, 50)
    said: list[Any] = [replace(first, api_version="v1"), replace(last, api_version="v1"), web("shop", 11)]
    if is_reverted:
        said += [
            replace(begun, sync_id="late"),
            HistoryReverted(resource=WEBS, since=Version(50), version=Version(12), time=NOON),
        ]
        said += [replace(ended, sync_id="late")]
    else:
        said += [replace(mark, sync_id="late", api_version="v1alpha1") for mark in (begun, ended)]
    records = logged(said, partitions=PARTITIONS, partition=partition)
    one, other = await cut_off(records, len(records), [0, 0])
    assert one == other
    assert list(one[0]) == [str(key)], "the object is there all the time"


def a_web(replicas: int) -> dict[str, object]:
    return manifest("Web", "shop", image="one", replicas=replicas)


async def test_decisions_of_a_new_log_are_replayed_and_those_of_the_lost_one_are_said_to_be_gone(
    tmp_path: Path,
) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))

        async def decided(*, first: int, last: int) -> None:
            with levelog.start("run", WEBS_FILE) as running:
                for replicas in range(first, last + 1):
                    sandbox.user.apply(a_web(replicas))

                    async def is_settled(replicas: int = replicas) -> bool:
                        is_there = len(sandbox.user.list("pods")) == replicas
                        return is_there and "in_sync" in (await levelog.ends("levels")).stdout

                    await until(is_settled, f"{replicas} pods")
                await running.stops()

        await decided(first=1, last=2)
        shutil.rmtree(levelog.data / "nats")
        await decided(first=3, last=4)
        replayed = (await levelog.ends("replay", WEBS_FILE, env={"COLUMNS": "300"})).stdout
        found = re.search(r"^webs/pods +(\d+) +0 +0 +0 +(\d+)$", replayed, re.MULTILINE)
        assert found, replayed
        same, skipped = map(int, found.groups())
        gone = f"{skipped} skipped: it was made on a log that is gone: the one that is there began later"
        assert same >= 2, replayed
        assert gone in replayed, replayed
