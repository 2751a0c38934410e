"""What ends a run of the tests, and what no test may leave behind."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.ports import free_port, is_listening
from rigs.waiting import until

FOLDER = Path(__file__).parents[1]

CONFTEST = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from rigs.run.leftovers import no_thread_is_left
"""

TESTS = """
import signal, threading
from rigs.run import leftovers

leftovers._PATIENCE_SECONDS = 0.1

def test_that_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, name="lost", daemon=True).start()

def test_that_is_deaf_to_its_time_limit():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()
"""


@pytest.mark.long
def test_a_run_that_stands_still_is_ended_and_a_thread_that_is_left_fails_its_test(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
    limits = ("--timeout", "1", "-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true")
    options = ("-n", "1", *limits, "-c", "/dev/null", "--rootdir", tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "thread lost is left behind" in said
    assert "1 failed, 1 passed, 1 error" in ended.stdout.splitlines()[-1]
    assert "crashed while running 'test_it.py::test_that_is_deaf_to_its_time_limit'" in said
    assert 'test_it.py", line 12 in test_that_is_deaf_to_its_time_limit' in said, "where it is"


# Listens until it is killed, whatever it is asked.
STUBBORN = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    while True:
        listening.accept()
"""

STARTS_ONE_AND_WAITS = """
import sys, time
from pathlib import Path
from rigs.processes import Process

child = Process([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path(sys.argv[3]))
while True:
    time.sleep(60)
"""


async def test_a_program_ends_with_the_process_that_started_it_and_was_killed(tmp_path: Path) -> None:
    port = free_port()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTS_ONE_AND_WAITS, STUBBORN, str(port), str(tmp_path / "log")),
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        stderr=subprocess.DEVNULL,
    )
    await until(lambda: is_listening(port), "the program")
    parent.kill()
    await parent.wait()
    await until(lambda: not is_listening(port), "the end of the program")
