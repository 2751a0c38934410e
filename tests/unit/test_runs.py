"""What ends a run of the tests, and what no test may leave behind."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
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
