"""Audit logs of metadata beside levelog's own log of the same time: each write gets the body that it left."""

from collections.abc import AsyncIterator, Collection

from levelog_base.wire.records import LoggedRecord
from levelog_wakes.answer import WakesFound, Woken, answer
from levelog_wakes.audit import AuditReader, Remarks
from levelog_wakes.bursts import Bursts
from levelog_wakes.recorded import take_with_records
from rigs.auditlogs import SETS, SHOPS, PlantedLog, ready_sets


async def ask(log: PlantedLog, *, unheard: Collection[str] = ()) -> WakesFound:
    reader, bursts = AuditReader(Remarks()), Bursts()
    lines = [line for line in log.lines() if not any(f'"userAgent": "{each}/' in line for each in unheard)]
    calls = (call for number, line in enumerate(lines) for call in reader.read(line.encode(), "a line", number))
    await take_with_records(calls, recorded(log), bursts, reader.remarks)
    return answer(bursts, reader)


async def recorded(log: PlantedLog) -> AsyncIterator[LoggedRecord]:
    for each in log.records:
        yield each


def woken(found: WakesFound, client: str, resource: str = SHOPS) -> Woken:
    [each] = [each for each in found.woken if each.client.startswith(f"{client} ") and each.resource == resource]
    return each


async def test_the_field_is_found_that_metadata_cannot_name() -> None:
    condition = woken(await ask(ready_sets("Metadata", causes=(SETS, "configmaps"))), "op").condition
    causes = {(each.relation, each.resource, each.field) for each in condition.fields}
    assert causes == {("owned", SETS, "status.readyReplicas"), ("named", "configmaps", "data.colour")}
    assert condition.recall > 0.95
    assert condition.precision == 1.0


async def test_what_is_written_by_somebody_who_is_not_audited_is_a_cause_as_well() -> None:
    found = await ask(ready_sets("Metadata"), unheard=["kubelet"])
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
    found = await ask(log)
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
    assert woken(await ask(log), "grower").undone == 10
