"""Probes as such: what is told when, by a clock of the test's own."""

import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from levelog_base.errors import Unavailable
from levelog_cli.monitoring.monitor import monitoring
from levelog_cli.monitoring.probes import BLOCKED_SECONDS, TOLD_SECONDS, AskedServer, Probes
from levelog_cli.wiring.roles import Role
from levelog_processors.guard import FunctionGuard
from rigs.clocks import Clock


def test_a_process_is_not_ready_before_each_of_its_parts_has_begun_and_has_no_trouble() -> None:
    probes = Probes(["ingest", "process"])
    assert probes.readyz().text.splitlines()[1:3] == [
        "[-]ingest failed: has not begun",
        "[-]process failed: has not begun",
    ]
    troubles = [""]
    probes.watch("ingest", lambda: "")
    probes.watch("process", lambda: troubles[0])
    probes.look()
    assert probes.readyz() == (good := probes.readyz())
    assert good.is_good
    assert good.text == "[+]event loop ok\n[+]ingest ok\n[+]process ok\nreadyz check passed\n"
    troubles[0] = "its leases\nare not renewed"
    probes.look()
    assert not probes.readyz().is_good
    assert "[-]process failed: its leases are not renewed\n" in probes.readyz().text
    assert probes.healthz().is_good


def test_a_loop_that_does_not_turn_is_told_with_where_it_stands_and_nothing_else_is() -> None:
    clock = Clock()
    probes = Probes([], clock)
    clock.now += BLOCKED_SECONDS
    assert probes.healthz().is_good
    clock.now += 1
    for answer in (probes.healthz(), probes.readyz()):
        assert not answer.is_good
        assert answer.text.startswith(f"[-]event loop failed: blocked for {BLOCKED_SECONDS + 1:.0f} s, in ")
        assert len(answer.text.splitlines()) == 2
    probes.look()
    assert probes.healthz().is_good


def test_the_line_that_blocks_is_of_the_thread_on_which_the_probes_were_made() -> None:
    clock = Clock()
    found: list[str] = []

    def ask_from_elsewhere() -> None:
        clock.now += BLOCKED_SECONDS + 1
        found.append(probes.healthz().text)

    probes = Probes([], clock)
    asking = threading.Thread(target=ask_from_elsewhere)
    asking.start()
    asking.join()
    assert "threading.py" in found[0], "where the thread of the test waits"
    assert "/monitoring/probes.py" not in found[0], "where the thread that asks is"


@contextmanager
def waiting(clock: Clock) -> Generator[Probes]:
    """The probes of a loop whose function waits, in a library that a library has called it by."""
    made, gate = list[Probes](), threading.Event()

    @contextmanager
    def traced() -> Generator[None]:
        yield

    @traced()
    def pods() -> None:
        made.append(Probes([], clock))
        gate.wait()

    guard = FunctionGuard("view webs/pods", timedelta(minutes=1))
    loop = threading.Thread(target=guard.run, args=(pods,))
    loop.start()
    while not made or not answer_later(made[0], clock).endswith(" wait"):
        pass
    yield made[0]
    gate.set()
    loop.join()


def test_a_function_that_waits_in_a_library_is_named_with_where_it_waits_there() -> None:
    clock = Clock()
    with waiting(clock) as probes:
        told = answer_later(probes, clock)
    assert re.search(r"blocked for \d+ s, in \S+/test_probes\.py:\d+ pods, at \S+/threading\.py:\d+ wait$", told)


def answer_later(probes: Probes, clock: Clock) -> str:
    clock.now += BLOCKED_SECONDS + 1
    return probes.healthz().text.splitlines()[0]


async def test_what_a_server_answers_wrongly_is_told_whatever_it_is() -> None:
    errors: list[Exception] = [Unavailable("the server is away"), ValueError("odd")]

    async def ask() -> None:
        raise errors[0]

    server = AskedServer(ask)
    await server.ask()
    assert server.judge() == "the server is away"
    errors.pop(0)
    await server.ask()
    assert server.judge() == "ValueError: odd"


def test_a_function_that_holds_up_the_loop_is_told_once_and_levelogs_own_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    with waiting(clock) as probes:
        probes.look()
        probes.tell()
        assert not caplog.messages
        for _ in range(2):
            clock.now += TOLD_SECONDS + 0.1
            probes.tell()
            probes.look()
    [told] = caplog.messages
    assert re.match(r"the event loop stands still for 2 s, in \S+/test_probes\.py:\d+ pods, at \S+ wait: nothing", told)


async def test_the_loop_of_a_process_that_listens_nowhere_is_watched_too(caplog: pytest.LogCaptureFixture) -> None:
    async with monitoring("", frozenset({Role.PROCESS})):
        block_until_told(caplog)
    [told] = caplog.messages
    assert "test_probes.py" in told


def block_until_told(caplog: pytest.LogCaptureFixture) -> None:
    until = time.monotonic() + 30
    while not caplog.messages and time.monotonic() < until:
        pass
