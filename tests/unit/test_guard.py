"""Functions that only compute: ended at their time limit, refused when they do I/O, and nothing else is hit."""
# pyright: reportPrivateUsage=false

import gc
import linecache
import random
import re
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog.calls.faults import HandlerFault
from levelog_processors.guard import watchdog as watchdogs
from levelog_processors.guard.calls import FunctionGuard
from levelog_processors.guard.watchdog import TimeIsOver, Watchdog, watchdog

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=60)
THREADS_ARE_AUDITED = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not tell")
SLEEP_IS_AUDITED = pytest.mark.skipif(sys.version_info < (3, 13), reason="only Python 3.13 tells")


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


@pytest.mark.parametrize("function", [spin, spin_in_parts])
def test_a_function_that_computes_for_ever_is_ended(function: Callable[[], None]) -> None:
    with pytest.raises(HandlerFault, match=r"took longer than 0\.05 s and was ended") as raised:
        guard(SHORT).run(function)
    frames = traceback.extract_tb(raised.value.__cause__.__traceback__ if raised.value.__cause__ else None)
    assert function.__name__ in {frame.name for frame in frames}


def test_what_a_function_returns_and_raises_is_passed_on() -> None:
    assert guard().run(lambda: 3) == 3
    with pytest.raises(KeyError):
        guard().run(lambda: dict[str, str]()["x"])


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdogs, "NEXT_SHOT_SECONDS", 0.02)
    ends = 0

    def stubborn() -> int:
        nonlocal ends
        while ends < watchdogs.SHOTS:
            try:
                spin()
            except BaseException:  # noqa: BLE001
                ends += 1
        return 3

    with pytest.raises(HandlerFault, match=r"took longer than 0\.05 s$"):
        guard(SHORT).run(stubborn)
    assert ends == watchdogs.SHOTS


def test_a_finalizer_that_a_collection_runs_inside_of_a_function_is_not_hit() -> None:
    """It may belong to anybody, and CPython prints what is raised in it and goes on."""
    finished = []

    class Other:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            spin_for(3 * SHORT.total_seconds())
            finished.append(self)

    def collect() -> None:
        Other()
        gc.collect()
        spin()

    with pytest.raises(HandlerFault, match="was ended"):
        guard(SHORT).run(collect)
    assert finished


def spin_for(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_the_end_never_hits_what_runs_after_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that take about as long as they may, with shots as close together as can be."""
    monkeypatch.setattr(watchdogs, "NEXT_SHOT_SECONDS", 0.0)
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


class HitOnTheWay:
    """A lock on whose way every shot hits, one after the other."""

    def __init__(self, dog: Watchdog) -> None:
        self._dog = dog
        self._lock = dog._lock
        self.is_hitting = False

    def __enter__(self) -> None:
        allowance = self._dog._armed
        if self.is_hitting and allowance is not None and allowance.shots < watchdogs.SHOTS:
            self._dog._shoot(allowance, time.monotonic())
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_calls_one_after_the_other_do_not_wake_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, woken = watchdog(), list[int]()
    waiters: Any = vars(dog._changed)["_waiters"]
    notify = dog._changed.notify

    def wake() -> None:
        woken.append(1)
        notify()

    guard().run(lambda: None)
    monkeypatch.setattr(dog._changed, "notify", wake)
    for _ in range(100):
        while not waiters:  # it is looking
            time.sleep(0)
        guard().run(lambda: None)
    assert len(woken) < 5


def test_as_many_shots_as_there_are_may_hit_while_the_call_is_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = watchdog()
    lock = HitOnTheWay(dog)
    monkeypatch.setattr(dog, "_lock", lock)

    def returns() -> int:
        lock.is_hitting = True
        return 3

    with pytest.raises(HandlerFault, match="took longer than 60 s"):
        guard().run(returns)
    assert dog._armed is None


def test_a_shot_that_nobody_noticed_is_taken_back() -> None:
    """The watchdog shoots while the call waits for the lock that the watchdog holds."""
    dog, caller = watchdog(), threading.get_ident()
    has_lock, is_leaving = threading.Event(), threading.Event()

    def shoots() -> None:
        with dog._lock:
            has_lock.set()
            is_leaving.wait(30)
            while sys._current_frames()[caller].f_code is not Watchdog.disarm.__code__:
                pass
            allowance = dog._armed
            assert allowance is not None
            dog._shoot(allowance, time.monotonic())

    shooter = threading.Thread(target=shoots)

    def returns() -> int:
        is_leaving.set()
        return 3

    standing = guard()
    shooter.start()
    assert has_lock.wait(30)
    dog._armed = standing._allowance  # as `arm` does, which cannot have the lock now
    try:
        returns()
    finally:
        dog.disarm(standing._allowance)
    shooter.join()
    for _ in range(1000):
        pass
    assert standing._allowance.shots == 0
    assert not dog._is_pending


BLOCKED = """
import sys, threading
from datetime import timedelta
from levelog_processors.guard.calls import FunctionGuard
from levelog_processors.guard.watchdog import watchdog

gate, dogs, faults = threading.Lock(), [], []

def blocks():
    dogs.append(watchdog())
    try:
        FunctionGuard("view", timedelta(milliseconds=20)).run(gate.acquire)
    except Exception as fault:
        faults.append(fault)

def traced():
    return dogs and dogs[0]._is_pending

gate.acquire()
threading.settrace(lambda *_: None)
sys.settrace(lambda *_: None)
blocked = threading.Thread(target=blocks)
blocked.start()
for _ in range(3):
    while not traced():
        pass
    while traced():
        pass
gate.release()
blocked.join()
print(faults)
"""


def test_a_call_that_waits_in_c_holds_up_no_traced_function() -> None:
    """In a process of its own: what this is about cannot be ended by a time limit."""
    ended = subprocess.run([sys.executable, "-c", BLOCKED], timeout=60, check=True, capture_output=True, text=True)
    assert "took longer than 0.02 s" in ended.stdout


def test_the_time_stands_while_levelog_fetches_for_the_function() -> None:
    waits = threading.Event()
    standing = guard(timedelta(milliseconds=100))

    def fetching() -> int:
        standing.pause()
        waits.wait(0.3)  # three times the limit
        standing.resume()
        return 3

    assert standing.run(fetching) == 3


def test_io_is_allowed_while_levelog_fetches_for_the_function(tmp_path: Path) -> None:
    standing = guard()

    def fetching() -> None:
        standing.pause()
        (tmp_path / "a").write_text("")
        standing.resume()
        (tmp_path / "b").write_text("")

    with pytest.raises(HandlerFault, match=r"opened '.*/b'"):
        standing.run(fetching)


def opens() -> None:
    Path("/nonexistent/levelog").read_text()


def makes_a_socket() -> None:
    socket.socket().close()


def resolves() -> None:
    socket.getaddrinfo("localhost", 80)


def starts_a_process() -> None:
    subprocess.run(["true"], check=True)


def sleeps() -> None:
    time.sleep(0)


def lists() -> None:
    list(Path("/").iterdir())


def starts_a_thread() -> None:
    threading.Thread(target=dict).start()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (opens, "opened '/nonexistent/levelog': it computes from what it is given alone; "),
        (makes_a_socket, "called socket.__new__: "),
        (resolves, "looked up the address of 'localhost': "),
        (starts_a_process, "started 'true'"),
        pytest.param(sleeps, "slept: ", marks=SLEEP_IS_AUDITED),
        (lists, "listed the directory '/'"),
        pytest.param(
            starts_a_thread,
            "started a thread: ",
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="not audited"),
        ),
    ],
)
def test_io_is_refused_with_what_was_done(function: Callable[[], None], said: str) -> None:
    with pytest.raises(HandlerFault, match=re.escape(said)):
        guard().run(function)
    if function is lists:
        function()  # as ever, outside


def test_a_refusal_that_is_swallowed_counts() -> None:
    def tolerant() -> int:
        try:
            opens()
        except Exception:  # noqa: BLE001
            return 3
        return 4

    with pytest.raises(HandlerFault, match="opened '/nonexistent/levelog'"):
        guard().run(tolerant)


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
