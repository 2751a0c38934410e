"""Levels and effects, in a simulation: what a level waits for, what fails it, what it sees."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Resource, Retry, Struct, call, event, patch_status
from levelog.testing import Simulation
from levelog_base.errors import LevelogError
from rigs.kinds import manifest
from rigs.simulated import run_with, simulated


class Record(Struct):
    address: str


class HostSpec(Struct):
    names: tuple[str, ...] = ()
    address: str = "10.0.0.1"


class Host(Resource, group="example.com", version="v1", plural="hosts"):
    spec: HostSpec


def publishing() -> Operator:
    """A record for each name of a host; a name that is left out stays, as nothing is called for it."""
    op = Operator("dns")

    @op.effect
    def record(request: Record) -> int | None:
        raise AssertionError("a simulation calls no effect")

    @op.view
    def published(host: Host, record: Index[str, Call[Record, int | None]]) -> Level[dict[str, str]]:
        held = {each.name: each.request.address for each in record[host.metadata.uid]}
        wanted = dict.fromkeys(host.spec.names, host.spec.address)
        return Level(wanted, {name: address for name, address in held.items() if name in wanted})

    @op.reconcile(published)
    def publish(host: Host, level: Level[dict[str, str]]) -> Iterator[Intent]:
        yield event("Publishing", "again")
        for name in sorted(level.drift.missing | level.drift.changed):
            yield call(record, Record(host.spec.address), name=name)

    return op


def host(*names: str, address: str = "10.0.0.1") -> dict[str, Any]:
    return manifest("Host", "a", names=[*names], address=address)


def status(simulation: Simulation) -> str:
    return simulation.level("published", "default", "a").status


def called(simulation: Simulation) -> list[str]:
    return [each.target.rpartition(":")[2] for each in simulation.intents if each.verb == "call"]


def test_a_level_is_in_sync_once_its_calls_took_place_and_calls_only_what_is_missing() -> None:
    with simulated(publishing(), host("www", "ftp")) as simulation:
        assert (status(simulation), called(simulation)) == ("in_sync", ["ftp", "www"])
        run_with(simulation, host("www", "ftp", "news"))
        run_with(simulation, host("www", address="10.0.0.2"))
        assert (status(simulation), called(simulation)) == ("in_sync", ["ftp", "www", "news", "www"])
        assert {each.state for each in simulation.intents} == {"settled"}


def test_what_effects_did_for_a_parent_is_forgotten_with_it() -> None:
    with Simulation(publishing()) as simulation:
        for _ in range(2):
            run_with(simulation, host("www"))
            simulation.delete(Host, "a")
            simulation.run()
        assert called(simulation) == ["www", "www"]


def test_a_call_that_fails_for_good_fails_its_level_until_something_changes() -> None:
    op = publishing()

    def refuses(request: Record) -> int:
        if request.address == "10.0.0.1":
            raise GiveUp("not ours")
        return 1

    with Simulation(op) as simulation:
        simulation.stub(op.effects["record"].function, refuses)
        simulation.apply(host("www"))
        simulation.advance(timedelta(hours=1))
        level = simulation.level("published", "default", "a")
        assert (level.status, level.reason, simulation.calls["record"]) == ("failed", "effect record: not ours", 1)
        run_with(simulation, host("www", address="10.0.0.2"))
        assert status(simulation) == "in_sync"


def test_no_level_waits_for_an_event_or_fails_because_of_one() -> None:
    with Simulation(publishing()) as simulation:
        simulation.refuse(403)
        run_with(simulation, host("www"))
        assert status(simulation) == "in_sync"
        assert [(each.verb, each.state) for each in simulation.intents] == [("event", "failed"), ("call", "settled")]


def test_a_simulation_asks_for_the_result_that_it_cannot_make_up() -> None:
    op = Operator("dns")

    @op.effect
    def record(request: Record) -> int:
        raise AssertionError("a simulation calls no effect")

    @op.effect
    def page(request: Record) -> None:
        raise AssertionError("nor this one")

    @op.view
    def published(host: Host) -> Level[int]:
        return Level(1, 0)

    @op.reconcile(published)
    def publish(host: Host) -> list[Intent]:
        return [call(effect, Record("10.0.0.1")) for effect in (page, record)]

    with Simulation(op) as simulation:
        simulation.apply(host("www"))
        with pytest.raises(LevelogError, match=r"record does not return None: say what it returns"):
            simulation.run()
        assert [(each.state, each.attempts) for each in simulation.intents] == [("pending", 0)] * 2
        with pytest.raises(KeyError, match="print is no effect"):
            simulation.stub(print, lambda _: None)


class TenantSpec(Struct):
    plan: str
    contact: str = "a"


class TenantStatus(Struct):
    seen: int = 0


class Tenant(Resource, group="example.com", version="v1", plural="tenants"):
    spec: TenantSpec
    status: TenantStatus = TenantStatus()


class Bill(Struct):
    plan: str
    contact: str


def billing(*, ends: int) -> tuple[Operator, Callable[[Bill], str]]:
    """Counts in its status, up to so many rounds, what its reconcile function has seen."""
    op = Operator("tenants")

    @op.effect
    def bill(request: Bill) -> str:
        raise AssertionError("a simulation calls no effect")

    @op.view
    def billed(tenant: Tenant, bill: Index[str, Call[Bill, str]]) -> Level[list[str]]:
        return Level([tenant.spec.plan], [each.request.plan for each in bill[tenant.metadata.uid]])

    @op.reconcile(billed)
    def send_bill(tenant: Tenant) -> Iterator[Intent]:
        if tenant.status.seen < ends:
            yield patch_status(tenant, TenantStatus(seen=tenant.status.seen + 1))
        yield call(bill, Bill(tenant.spec.plan, tenant.spec.contact))

    return op, bill


def tenant(contact: str) -> dict[str, Any]:
    spec = {"plan": "small", "contact": contact}
    return {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "a"}, "spec": spec}


def busy(_: Bill) -> str:
    raise Retry("busy")


def away(_: Bill) -> str:
    raise ConnectionResetError("by peer")


@pytest.mark.parametrize("fails", [busy, away])
@pytest.mark.parametrize("ends", [3, pytest.param(1_000, marks=pytest.mark.long)])
def test_own_status_writes_leave_a_call_that_waits_its_key_and_its_pace(
    ends: int, fails: Callable[[Bill], str]
) -> None:
    op, bill = billing(ends=ends)
    with Simulation(op) as simulation:
        simulation.stub(bill, fails)
        run_with(simulation, tenant("a"))
        simulation.advance(timedelta(hours=3))
        assert len([each for each in simulation.intents if each.verb == "patch_status"]) > 2
        calls = [each for each in simulation.intents if each.verb == "call"]
        assert len({each.idempotency_key for each in calls}) == 1, calls
        assert 15 < simulation.calls["bill"] < 40
        run_with(simulation, tenant("b"))
        simulation.advance(timedelta(minutes=16))
        simulation.stub(bill, lambda _: "billed")
        simulation.advance(timedelta(minutes=16))
        assert simulation.level("billed", "default", "a").status == "in_sync"
        calls = [each for each in simulation.intents if each.verb == "call"]
        assert [(each.state, each.body["contact"]) for each in calls] == [("superseded", "a"), ("settled", "b")]


def test_a_call_that_gave_up_in_a_later_round_than_it_was_decided_in_fails_that_round() -> None:
    op, bill = billing(ends=1)
    with Simulation(op) as simulation:
        simulation.stub(bill, busy)
        run_with(simulation, tenant("a"))

        def gives_up(_: Bill) -> str:
            raise GiveUp("no such plan")

        simulation.stub(bill, gives_up)
        simulation.advance(timedelta(days=1))
        level = simulation.level("billed", "default", "a")
        assert (level.status, level.reason) == ("failed", "effect bill: no such plan")
        assert len({each.idempotency_key for each in simulation.intents if each.verb == "call"}) == 1
