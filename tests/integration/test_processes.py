import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.ports import free_port, is_listening
from rigs.processes import Process
from rigs.waiting import until

TESTS = Path(__file__).parent.parent

# Listens until it is killed, whatever it is asked.
STUBBORN = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print("listening", flush=True)
    while True:
        time.sleep(60)
"""

STARTS_ONE_AND_WAITS = """
import sys, time
from pathlib import Path
from rigs.processes import Process

child = Process([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path(sys.argv[3]))
while True:
    time.sleep(60)
"""


async def is_up(port: int) -> bool:
    return is_listening(port)


async def is_down(port: int) -> bool:
    return not is_listening(port)


async def test_a_program_ends_with_the_process_that_started_it_and_was_killed(tmp_path: Path) -> None:
    port = free_port()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTS_ONE_AND_WAITS, STUBBORN, str(port), str(tmp_path / "log")),
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stderr=subprocess.DEVNULL,
    )
    await until(lambda: is_up(port), "the program")
    parent.kill()
    await parent.wait()
    await until(lambda: is_down(port), "the end of the program", seconds=10)


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps not found on PATH")
async def test_nobody_watches_a_pid_that_is_no_longer_the_programs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Process(["tail", "-f", log], log)

    async def number_is(number: int) -> bool:
        ps = await asyncio.create_subprocess_exec("ps", "-A", "-ww", "-o", "args=", stdout=subprocess.PIPE)
        return (await ps.communicate())[0].decode().count(f"tail -f {log}") == number

    await until(lambda: number_is(2), "the program and its watcher")
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: ended(process), "the end of the program")
    await until(lambda: number_is(0), "the end of the watcher")


async def ended(process: Process) -> bool:
    return not process.is_running
