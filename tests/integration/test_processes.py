import asyncio
import os
import subprocess
import sys
from pathlib import Path

from rigs.ports import free_port, is_listening
from rigs.waiting import until

TESTS = Path(__file__).parent.parent

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
    await until(lambda: is_down(port), "the end of the program")
