"""Audit logs with planted patterns, whose right answer is known, also where levelog's log has the bodies."""

import gzip
import json
import random
import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.wire.records import LoggedRecord
from levelog_cli.loading import load_operators
from levelog_wakes.answer import WakesFound, Woken, answer
from levelog_wakes.audit import AuditCall, AuditReader, Remarks
from levelog_wakes.bursts import Bursts
from levelog_wakes.periods import rhythms_of
from levelog_wakes.recorded import take_with_records
from levelog_wakes.streams import read_files
from rigs.auditlogs import SETS, SHOPS, PlantedLog, moments, ready_sets

LOGS = Path(__file__).parents[3] / "bench/wakes/logs"
"""Of unmodified programs."""


def ask(lines: Sequence[str], *, client: str = "") -> WakesFound:
    reader = AuditReader(Remarks())
    calls = (call for number, line in enumerate(lines) for call in reader.read(line.encode(), f"line {number}"))
    return answered(calls, reader, client=client)


def answered(calls: Iterable[AuditCall], reader: AuditReader, *, client: str = "") -> WakesFound:
    bursts = Bursts(client)
    for call in calls:
        bursts.take(call)
    return answer(bursts, reader)


def woken(found: WakesFound, client: str, resource: str = SHOPS) -> Woken:
    [each] = [each for each in found.woken if each.client.startswith(f"{client} ") and each.resource == resource]
    return each


def test_the_field_that_it_waits_for_is_found_with_period_and_saving() -> None:
    found = woken(ask(ready_sets().lines()), "op")
    [cause] = found.condition.fields
    assert (cause.relation, cause.resource, cause.field) == ("owned", SETS, "status.readyReplicas")
    assert found.condition.recall > 0.9  # of three writes nobody knows what was before
    assert found.condition.precision == 1.0
    [period] = found.periods
    assert period.seconds == pytest.approx(15, abs=0.2)
    assert period.objects == 3
    assert found.lists == {"pods": found.wakes}
    assert found.saving is not None
    assert found.saving.wakes == found.wakes - found.condition.needed.wrote
    assert found.saving.cpu_seconds > 0


def test_a_write_that_moves_times_alone_changes_nothing() -> None:
    log = PlantedLog()
    log.exists(SHOPS, "s", status={"checkedAt": "2026-01-01T00:00:00Z", "is": "there"})
    for beat in range(1, 20):
        log.write("op", 15.0 * beat, SHOPS, "s", status={"checkedAt": f"2026-01-01T00:{beat:02}:00Z"})
    log.write("op", 300.0, SHOPS, "s", status={"checkedAt": "2026-01-01T00:20:00Z", "is": "gone"})
    found = woken(ask(log.lines()), "op")
    # of the first two nobody knows what was before
    assert (found.wrote, found.unchanged_writes) == (2, 18)


def test_a_write_of_a_scale_that_moves_the_object_is_one_that_changes_it() -> None:
    reader = AuditReader(Remarks())
    files = [LOGS / "kube-controller-manager" / f"{name}.jsonl.gz" for name in ("idle", "changes")]
    found = answered(read_files(files, reader), reader, client="kube-controller-manager")
    [scaled] = [
        each
        for each in found.woken
        if "horizontal-pod-autoscaler" in each.client and each.resource == "deployments.apps"
    ]
    assert scaled.wrote == 6


def test_two_causes_are_found() -> None:
    found = woken(ask(ready_sets(causes=(SETS, "configmaps")).lines()), "op")
    causes = {(each.relation, each.resource, each.field) for each in found.condition.fields}
    assert causes == {("owned", SETS, "status.readyReplicas"), ("named", "configmaps", "data.colour")}
    assert found.condition.recall > 0.85


def test_pollers_of_one_object_are_told_apart_under_one_user_agent_or_two() -> None:
    chance, log = random.Random(2), PlantedLog("Metadata")
    for client, period, start in (("op", 10.0, 0.0), ("op", 35.0, 4.3), ("other", 7.0, 1.1)):
        for beat in range(int(900 / period)):
            log.get(client, start + beat * period + chance.uniform(0, 0.05), SHOPS, "s")
    found = ask(log.lines())
    for client, periods in (("op", [10, 35]), ("other", [7])):
        told = woken(found, client).periods
        assert [each.seconds for each in told] == pytest.approx(periods, rel=0.01)
        assert {each.pollers for each in told} == {1}


def test_without_bodies_the_object_is_found_by_its_name() -> None:
    found = woken(ask(ready_sets("Metadata").lines()), "op")
    assert found.size_bytes is None
    [cause] = found.condition.fields
    assert (cause.relation, cause.resource) == ("owned", SETS)


def test_wakes_for_something_outside_have_no_field() -> None:
    log = ready_sets(causes=())
    for value, at in enumerate(moments(random.Random(5), 30)):
        log.get("puller", at - 0.01, SHOPS, "s0")
        log.write("puller", at, SHOPS, "s0", status={"outside": value})
    assert woken(ask(log.lines()), "puller").condition.kind == "outside"
    assert woken(ask(log.lines()), "op").condition.kind == "nothing"


def test_a_lease_is_no_cause_and_wakes_about_it_have_none() -> None:
    log, lease = PlantedLog(), "leases.coordination.k8s.io"
    log.exists(SHOPS, "s", status={})
    log.exists(lease, "s", spec={})
    for turn, at in enumerate(moments(random.Random(5), 30)):
        log.write("leader", at, lease, "s", spec={"holder": turn})
        for client, resource in (("op", SHOPS), ("standby", lease)):
            log.get(client, at + 1, resource, "s")
            log.write(client, at + 1.1, resource, "s", status={"seen": turn})
    found = ask(log.lines())
    for client, resource in (("op", SHOPS), ("standby", lease)):
        condition = woken(found, client, resource).condition
        assert (condition.kind, condition.fields) == ("outside", [])


def test_a_write_at_each_period_is_a_date() -> None:
    log = PlantedLog()
    log.exists(SHOPS, "s", status={})
    for beat in range(60):
        log.write("beater", 10.0 * beat, SHOPS, "s", status={"beat": beat})
    assert woken(ask(log.lines()), "beater").condition.kind == "date"


def test_writes_undone_without_effect_and_followed_by_its_own_wake_are_counted() -> None:
    log = PlantedLog()
    log.exists(SHOPS, "s", spec={"size": 1})
    for turn in range(10):
        log.write("grower", 100.0 * turn, SHOPS, "s", spec={"size": 5})
        log.get("grower", 100.0 * turn + 1, SHOPS, "s")
        log.write("shrinker", 100.0 * turn + 50, SHOPS, "s", spec={"size": 1})
        log.write("idler", 100.0 * turn + 70, SHOPS, "s", spec={"size": 1})
    found = ask(log.lines())
    assert woken(found, "grower").undone >= 8
    assert woken(found, "grower").echoes == 10
    assert woken(found, "idler").unchanged_writes == 10
    assert woken(found, "idler").wrote == 0


def test_only_the_clients_that_are_asked_for_are_told_of() -> None:
    assert {each.client for each in ask(ready_sets().lines(), client="OP (").woken} == {"op (shop/op)"}


@pytest.mark.parametrize("causes", [(SETS,), (SETS, "configmaps")])
def test_a_draft_is_an_operator_that_loads(tmp_path: Path, causes: Sequence[str]) -> None:
    file = tmp_path / "draft.py"
    file.write_text(woken(ask(ready_sets(causes=causes).lines()), "op").draft)
    [operator] = load_operators([file])
    assert list(operator.indices)
    assert [*operator.views] == ["waits"]


def without(event: str, *keys: str, **other: Any) -> str:
    changed = {**json.loads(event), **other}
    return json.dumps({key: value for key, value in changed.items() if key not in keys})


def test_bad_input_is_counted_and_left_out() -> None:
    [*lines] = ready_sets().lines()[:40]
    lines += [lines[0][:90], "nonsense"]
    lines += [without(lines[1], apiVersion="audit.k8s.io/v1alpha1", auditID="a")]
    lines += [without(lines[1], "requestReceivedTimestamp", auditID="b"), lines[2]]
    lines += [without(lines[3], stage="RequestReceived", auditID="c")]
    found = ask(lines)
    assert sorted(remark.partition(" (first")[0] for remark in found.remarks) == [
        "1 events came twice, and count once",
        "1 events of audit.k8s.io/v1alpha1 are left out",
        "1 events without a time are left out",
        "1 requests have no ResponseComplete: still running, or lost",
        "2 lines are cut or no audit events, and left out",
    ]


def test_clocks_that_differ_are_noticed_by_versions() -> None:
    log = PlantedLog()
    log.exists(SHOPS, "s", status={})
    for beat in range(10):
        log.write("beater", 10.0 * beat, SHOPS, "s", status={"beat": beat})
    [*lines] = log.lines()
    objects = [json.loads(line)["responseObject"] for line in lines]
    assert not any("clocks" in remark for remark in ask(lines).remarks)
    lines[4:6] = [without(lines[4], responseObject=objects[5]), without(lines[5], responseObject=objects[4])]
    assert any("clocks" in remark for remark in ask(lines).remarks)


def test_files_of_any_form_give_the_same_answer(tmp_path: Path) -> None:
    lines = ready_sets().lines()
    expected = ask(lines)
    half = len(lines) // 2
    plain, packed = tmp_path / "one.log", tmp_path / "two.log.gz"
    plain.write_text("\n".join(lines[half:]) + "\n\n")
    packed.write_bytes(gzip.compress("\n".join(lines[:half]).encode()))
    listed = tmp_path / "list.json"
    items = ",\n".join(lines)
    listed.write_text(f'{{\n"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [\n{items}]\n}}')
    for files in ([plain, packed], [listed]):
        reader = AuditReader(Remarks())
        assert answered(read_files(files, reader), reader) == expected


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.log cannot be read: No such file"):
        next(read_files([tmp_path / "nowhere.log"], AuditReader(Remarks())))


def test_a_file_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "cut.gz"
    file.write_bytes(gzip.compress("\n".join(ready_sets().lines()).encode())[:-2000])
    reader = AuditReader(Remarks())
    assert answered(read_files([file], reader), reader).events > 100
    assert any("cut" in remark for remark in reader.remarks.lines())


@pytest.mark.parametrize(
    ("read", "odd"),
    [(rb'"2nd"', b"[" * 3000 + b"]" * 3000), (rb'"2nd"', b'"\xff"'), (rb'"\d+"', '"²"'.encode())],
    ids=["deep", "no UTF-8", "no version"],
)
def test_an_object_that_cannot_be_read_ends_nothing(read: bytes, odd: bytes) -> None:
    log = PlantedLog()
    log.exists(SHOPS, "s", status={})
    for at, text in enumerate(("1st", "2nd"), 1):
        log.write("admin", at, SHOPS, "s", status={"is": text})
    for beat in range(1, 20):
        log.get("op", 15.0 * beat, SHOPS, "s")
    first, second, *lines = [line.encode() for line in log.lines()]
    reader = AuditReader(Remarks())
    events = (first, re.sub(read, lambda _: odd, second), *lines)
    found = answered((call for line in events for call in reader.read(line, "log")), reader)
    assert woken(found, "op").wakes == 19


def ticks(period: float, jitter: float, number: int = 50, *, missed: float = 0.0, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    times = accumulate(period + chance.uniform(-jitter, jitter) * period for _ in range(number))
    return [each for each in times if chance.random() >= missed]


@pytest.mark.parametrize("period", [1, 5, 15, 60, 600])
@pytest.mark.parametrize(("jitter", "missed"), [(0.001, 0.0), (0.02, 0.0), (0.2, 0.0), (0.02, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_a_period_is_found_though_wakes_are_early_late_or_missed(
    period: float, jitter: float, missed: float, seed: int
) -> None:
    [rhythm] = rhythms_of(ticks(period, jitter, missed=missed, seed=seed))
    assert rhythm.seconds == pytest.approx(period, rel=0.02 + jitter / 2)
    assert rhythm.jitter_seconds <= period * max(jitter, 0.03)


@pytest.mark.parametrize("seed", range(5))
def test_a_period_is_found_among_as_many_other_wakes(seed: int) -> None:
    chance = random.Random(seed)
    others = [chance.uniform(0, 32 * 15) for _ in range(32)]
    [rhythm] = rhythms_of(sorted([*ticks(15, 0.01, 32, seed=seed), *others]))
    assert rhythm.seconds == pytest.approx(15, rel=0.02)


def test_wakes_at_random_hardly_ever_have_a_period() -> None:
    chance = random.Random(7)
    series = [list(accumulate(chance.expovariate(1 / 15) for _ in range(40))) for _ in range(60)]
    assert sum(bool(rhythms_of(times)) for times in series) <= 1


def test_of_few_wakes_nothing_is_said() -> None:
    assert rhythms_of([0, 15, 30, 45]) == []


@pytest.mark.parametrize("periods", [(10, 35), (5, 60), (15, 15, 15, 15), (7, 20, 30)])
@pytest.mark.parametrize("seed", range(4))
def test_pollers_of_one_object_are_found_apart(periods: tuple[int, ...], seed: int) -> None:
    starts = (0, 2.9, 6.3, 9.6)
    series = [
        [start + at for at in ticks(period, 0.004, 600 // period, seed=seed + number)]
        for number, (period, start) in enumerate(zip(periods, starts, strict=False))
    ]
    found = rhythms_of(sorted(at for times in series for at in times))
    told = sorted(each.seconds for each in found for _ in range(each.pollers))
    assert told == pytest.approx(sorted(periods), rel=0.02)


async def ask_with_records(log: PlantedLog, *, unheard: Collection[str] = ()) -> WakesFound:
    reader, bursts = AuditReader(Remarks()), Bursts()
    lines = [line for line in log.lines() if not any(f'"userAgent": "{each}/' in line for each in unheard)]
    calls = (call for number, line in enumerate(lines) for call in reader.read(line.encode(), "a line", number))
    await take_with_records(calls, recorded(log), bursts, reader.remarks)
    return answer(bursts, reader)


async def recorded(log: PlantedLog) -> AsyncIterator[LoggedRecord]:
    for each in log.records:
        yield each


async def test_the_field_is_found_that_metadata_cannot_name() -> None:
    condition = woken(await ask_with_records(ready_sets("Metadata", causes=(SETS, "configmaps"))), "op").condition
    causes = {(each.relation, each.resource, each.field) for each in condition.fields}
    assert causes == {("owned", SETS, "status.readyReplicas"), ("named", "configmaps", "data.colour")}
    assert condition.recall > 0.95
    assert condition.precision == 1.0


async def test_what_is_written_by_somebody_who_is_not_audited_is_a_cause_as_well() -> None:
    found = await ask_with_records(ready_sets("Metadata"), unheard=["kubelet"])
    [cause] = woken(found, "op").condition.fields
    assert (cause.relation, cause.resource, cause.field) == ("owned", SETS, "status.readyReplicas")
    assert any("42 records are of writes that the audit log does not have" in each for each in found.remarks)


async def test_a_write_without_a_record_changed_nothing() -> None:
    log = PlantedLog("Metadata")
    log.exists(SHOPS, "s", spec={"size": 1})
    for turn in range(10):
        log.write("grower", 100.0 * turn, SHOPS, "s", spec={"size": turn % 2 + 5})
        log.write("idler", 100.0 * turn + 1, SHOPS, "s", spec={"size": turn % 2 + 5})
        log.write("early", 100.0 * turn + 99, SHOPS, "s", spec={"size": turn % 2 + 5})  # the next record follows
    found = await ask_with_records(log)
    assert woken(found, "grower").wrote == 10
    for client in ("idler", "early"):
        assert woken(found, client).unchanged_writes == 10
        assert woken(found, client).wrote == 0


async def test_writes_that_others_undo_are_seen() -> None:
    log = PlantedLog("Metadata")
    log.exists(SHOPS, "s", spec={"size": 1})
    for turn in range(10):
        log.write("grower", 100.0 * turn, SHOPS, "s", spec={"size": 5})
        log.write("shrinker", 100.0 * turn + 50, SHOPS, "s", spec={"size": 1})
    assert woken(await ask_with_records(log), "grower").undone == 10
