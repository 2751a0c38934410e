"""Functions that only compute: ended at their time limit, refused when they do I/O, and nothing else is hit."""
# pyright: reportPrivateUsage=false

import linecache
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from levelog.calls import audithook
from levelog.calls.faults import HandlerFault, tell_fault
from levelog.handlers.viewhandlers import MOST_VIEW_TIME
from levelog_processors import guard as guards
from levelog_processors.guard import FunctionGuard, TimeIsOver, suspended
from levelog_store.owners.leases import DURATION

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=60)
THREADS_ARE_AUDITED = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not tell")
SLEEP_IS_AUDITED = pytest.mark.skipif(sys.version_info < (3, 13), reason="only Python 3.13 tells")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purity is checked in this process."""
    monkeypatch.setattr(audithook, "_is_purity_checked", True)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not, whatever ran before."""
    monkeypatch.setattr(audithook, "_is_purity_checked", False)


def guard(limit: timedelta = LONG) -> FunctionGuard:
    return FunctionGuard("view webs/pods", limit)


def spin() -> None:
    while True:
        pass


def spin_in_parts() -> None:
    def part() -> Iterator[int]:
        while True:
            yield 1

    for _ in part():
        sum(range(10))


def backtracks() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def sleeps_long() -> None:
    time.sleep(600)


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def waits_for_a_socket() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.recv(1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "function", [spin, spin_in_parts, backtracks, sleeps_long, waits_for_a_lock, waits_for_a_socket]
)
def test_a_function_that_computes_or_waits_for_ever_is_ended(function: Callable[[], None]) -> None:
    with pytest.raises(HandlerFault, match=r"took longer than 0\.05 s and was ended") as raised:
        guard(SHORT).run(function)
    frames = traceback.extract_tb(raised.value.__cause__.__traceback__ if raised.value.__cause__ else None)
    assert function.__name__ in {frame.name for frame in frames}


def test_the_log_names_the_line_at_which_a_function_was_ended(caplog: pytest.LogCaptureFixture) -> None:
    of_file: dict[str, Any] = {}
    exec(compile("def pods():\n    wanted = 3\n    while wanted: pass\n", "/home/webs.py", "exec"), of_file)
    with pytest.raises(HandlerFault) as raised:
        guard(SHORT).run(of_file["pods"])
    tell_fault("view", "webs/pods", of_file["pods"], raised.value, subject="default/shop")
    assert caplog.messages[-1].endswith("was ended (webs.py line 3)")


def test_what_a_function_returns_and_raises_is_passed_on() -> None:
    assert guard().run(lambda: 3) == 3
    with pytest.raises(KeyError):
        guard().run(lambda: dict[str, str]()["x"])


def test_a_call_is_there_before_the_watchdog_is_asked_whether_it_has_to_be_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waking(threading.Event):
        def is_set(self) -> bool:
            assert threading.get_ident() in guards._running, "the watchdog may look now, and sleep on"
            return super().is_set()

    monkeypatch.setattr(guards, "_has_begun", Waking())
    guard().run(list)


SIMULTANEOUS = """
import sys, threading
from datetime import timedelta
from levelog_processors.guard import FunctionGuard

sys.setswitchinterval(1e-6)
begin, end = threading.Barrier(8), threading.Barrier(9)

def call():
    begin.wait()
    FunctionGuard("view", timedelta(seconds=60)).run(end.wait)

for _ in range(8):
    threading.Thread(target=call).start()
end.wait()
print(sum(thread.name == "levelog watchdog" for thread in threading.enumerate()))
"""


def test_calls_that_begin_at_once_in_several_threads_have_one_watchdog() -> None:
    command = [sys.executable, "-c", SIMULTANEOUS]
    ended = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
    assert ended.stdout == "1\n"


def test_except_exception_does_not_swallow_the_end() -> None:
    def tolerant() -> None:
        while True:
            try:
                spin()
            except Exception:  # noqa: BLE001
                continue

    with pytest.raises(HandlerFault, match="was ended"):
        guard(SHORT).run(tolerant)


def test_a_function_that_swallows_the_end_is_told_again_and_its_result_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guards, "TOLD_AFTER_SECONDS", 0.0)
    ends = 0

    def stubborn() -> int:
        nonlocal ends
        while ends < 3:
            try:
                spin()
            except BaseException:  # noqa: BLE001
                ends += 1
        return 3

    with pytest.raises(HandlerFault, match=r"took longer than 0\.05 s$"):
        guard(SHORT).run(stubborn)
    assert caplog.messages == ["view webs/pods took longer than 0.05 s and still runs; it holds up its thread"]


def test_in_another_thread_python_code_is_ended_and_what_waits_in_c_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guards, "TOLD_AFTER_SECONDS", 0.0)
    faults: list[str] = []
    gate = threading.Lock()

    def call(function: Callable[[], object]) -> None:
        try:
            guard(SHORT).run(function)
        except HandlerFault as fault:
            faults.append(str(fault))

    gate.acquire()
    threads = [threading.Thread(target=call, args=(function,)) for function in (spin, gate.acquire)]
    for thread in threads:
        thread.start()
    threads[0].join()
    while len(caplog.messages) < 2:  # the second call may have begun later
        pass
    assert faults == ["took longer than 0.05 s and was ended"]
    gate.release()
    threads[1].join()
    assert faults[1].startswith("took longer than 0.05 s")
    told = "view webs/pods took longer than 0.05 s and still runs; it holds up its thread"
    assert set(caplog.messages) == {told}


def test_nothing_is_raised_in_a_thread_whose_call_ends_while_others_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gates, ended, raised = [threading.Lock(), threading.Lock()], threading.Event(), list[bool]()

    def tell(_: FunctionGuard) -> None:
        if not ended.is_set():
            gates[1].release()
            ended.wait(10)

    def call(gate: threading.Lock) -> None:
        with suppress(HandlerFault):
            guard(SHORT).run(gate.acquire)
        if gate is gates[1]:
            ended.set()

    monkeypatch.setattr(guards, "TOLD_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(guards, "_raise_in_thread", lambda thread, _: raised.append(thread.value in guards._running))
    monkeypatch.setattr(FunctionGuard, "tell", tell)
    threads = [threading.Thread(target=call, args=(gate,)) for gate in gates]
    for gate in gates:
        gate.acquire()
    for thread in threads:
        thread.start()
        while thread.is_alive() and thread.ident not in guards._running:
            pass
    threads[1].join()
    while len(raised) < 3:  # the look is over in which the second call ended
        pass
    gates[0].release()
    threads[0].join()
    assert set(raised) == {True}


def spin_for(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_the_end_never_hits_what_runs_after_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that take about as long as they may, with signals as close together as can be."""
    monkeypatch.setattr(guards, "LOOK_SECONDS", 0.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    in_time = ended = hits = 0
    deadline = time.monotonic() + 60
    try:
        while min(in_time, ended) < 300 and time.monotonic() < deadline:
            seconds = 0.0004 * random.random()
            try:
                guard(timedelta(microseconds=200)).run(lambda seconds=seconds: spin_for(seconds))  # type: ignore[misc]
                in_time += 1
            except HandlerFault:
                ended += 1
            try:
                for _ in range(50):  # whatever is still on its way would be raised here
                    pass
            except TimeIsOver:
                hits += 1
    finally:
        sys.setswitchinterval(interval)
    assert hits == 0
    assert min(in_time, ended) > 50, (in_time, ended)


def test_the_time_stands_and_io_is_allowed_while_somebody_looks_at_it_in_a_debugger(
    tmp_path: Path, checked: None
) -> None:
    def looked_at() -> int:
        with suspended():
            (tmp_path / "a").write_text("")
            spin_for(3 * SHORT.total_seconds())
        return 3

    assert guard(SHORT).run(looked_at) == 3


UNCHECKED = """
import sys
from datetime import timedelta
from pathlib import Path

added = []
sys.addaudithook = added.append
from levelog.calls.audithook import check_purity
from levelog_processors.guard import FunctionGuard

guard = FunctionGuard("view", timedelta(seconds=60))
print(guard.run(lambda: Path(sys.argv[1]).read_text()), len(added))
check_purity()
print(guard.run(lambda: "pure"), len(added))
"""


def test_no_audit_hook_is_added_before_somebody_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("read")
    command = [sys.executable, "-c", UNCHECKED, str(tmp_path / "read")]
    ended = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
    assert ended.stdout == "read 0\npure 1\n"


ENDING = """
import asyncio

class Left:
    def __del__(self):
        raise ValueError("said at the end")

asyncio.left = Left()
from levelog.calls import audithook
with audithook.harmless():
    pass
"""


def test_the_hook_hides_no_error_of_a_process_that_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], timeout=60, check=True, capture_output=True, text=True)
    assert "ValueError: said at the end" in ended.stderr
    assert "audit hook" not in ended.stderr


def opens() -> None:
    Path("/nonexistent/levelog").read_text()


def lists() -> None:
    list(Path("/").iterdir())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (opens, "open '/nonexistent/levelog': it computes from what it is given alone; "),
        (lambda: socket.socket().close(), "socket.__new__ "),
        (lambda: socket.getaddrinfo("localhost", 80), "socket.getaddrinfo 'localhost': "),
        (lambda: subprocess.run(["true"], check=True), "subprocess.Popen 'true'"),
        pytest.param(lambda: time.sleep(0), "time.sleep 0: ", marks=SLEEP_IS_AUDITED),
        (lists, "os.listdir "),
        pytest.param(lambda: threading.Thread(target=dict).start(), "_thread.start_", marks=THREADS_ARE_AUDITED),
    ],
)
@pytest.mark.usefixtures("checked")
def test_io_is_refused_with_what_was_done(function: Callable[[], None], said: str) -> None:
    with pytest.raises(HandlerFault, match=re.escape(said)):
        guard().run(function)
    if function is lists:
        function()  # as ever, outside


def test_a_signal_that_comes_while_a_call_begins_or_ends_raises_nothing() -> None:
    standing, frames = guard(), list[FrameType]()
    standing.run(lambda: frames.append(sys._getframe(1)))
    standing._ends_at = 0.0
    guards._running[threading.get_ident()] = standing
    try:
        guards._end(guards.SIGNAL, frames[0])
        with pytest.raises(TimeIsOver):
            guards._end(guards.SIGNAL, sys._getframe())
    finally:
        standing.pause()


@pytest.mark.usefixtures("checked")
def test_a_refusal_that_is_swallowed_counts() -> None:
    def tolerant() -> int:
        try:
            opens()
        except Exception:  # noqa: BLE001
            return 3
        return 4

    with pytest.raises(HandlerFault, match="open '/nonexistent/levelog'"):
        guard().run(tolerant)


@pytest.mark.usefixtures("checked")
def test_imports_time_zones_and_tracebacks_may_read_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_by_a_view.py").write_text("NAME = 'x'\n")
    monkeypatch.syspath_prepend(tmp_path)

    def reads() -> Any:
        from zoneinfo import ZoneInfo

        import imported_by_a_view  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

        linecache.clearcache()
        shown = ""
        try:
            dict[str, str]()["missing"]
        except KeyError:
            shown = traceback.format_exc()
        return imported_by_a_view.NAME, ZoneInfo.no_cache("Europe/Paris").key, shown

    try:
        name, zone, shown = guard().run(reads)
    finally:
        sys.modules.pop("imported_by_a_view", None)
    assert (name, zone) == ("x", "Europe/Paris")
    assert '["missing"]' in shown


@pytest.mark.usefixtures("checked")
def test_other_threads_are_not_concerned(tmp_path: Path) -> None:
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        begun.wait(30)
        (tmp_path / "a").write_text("x")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def waits() -> bool:
        begun.set()
        return done.wait(30)

    assert guard().run(waits)
    thread.join()


def test_a_view_may_not_take_so_long_that_its_process_loses_its_leases() -> None:
    assert MOST_VIEW_TIME < DURATION


def test_no_timer_outlasts_a_call() -> None:
    """It would kill a process that ends, in which Python has taken the handlers away."""
    during = guard().run(lambda: signal.getitimer(signal.ITIMER_VIRTUAL))
    assert during != (0.0, 0.0)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
