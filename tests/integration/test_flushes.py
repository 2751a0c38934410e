"""What is acknowledged was flushed to disk before: seen in the system calls of the embedded nats-server and of SQLite.

A static program that starts threads as it likes can be looked into by a tracer alone, so strace is needed here.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from levelog_base.wire.objects import Cluster
from levelog_cli.servers import embedded
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.embedded import EmbeddedNats, nats_program
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream
from levelog_log.transport.connection import connect
from rigs.logs import web_message, writer_for
from rigs.processes import Process
from rigs.waiting import until

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace not found on PATH")

CALLS: Final = "trace=write,writev,pwrite64,fsync,fdatasync"
_CALL: Final = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)")
_BLOCK: Final = re.compile(r"/streams/levelog-c/msgs/\d+\.blk>")
_UNFINISHED: Final = "<unfinished ...>"
BATCHES: Final = 3


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk, where flushing is work."""
    with tempfile.TemporaryDirectory(prefix="levelog-flushes-", dir="/var/tmp") as folder:
        yield Path(folder)


def traced(folder: Path, program: str | Path, prepare: str = "") -> tuple[Path, Path]:
    """A program that runs another one under strace, under its own pid; and the file with the system calls."""
    launcher, calls = folder / "traced", folder / "calls"
    # -D: the tracer is no parent of what it traces; -y: descriptors with their paths
    options = f"-D -f -y -s 300 -e {CALLS} -e signal=none -o {calls}"
    launcher.write_text(f'#!/bin/sh\n{prepare}\nexec strace {options} {program} "$@"\n')
    launcher.chmod(0o755)
    return launcher, calls


def ended_calls(text: str) -> list[tuple[str, str]]:
    """Name and arguments of each call, in the order in which they returned, writes in that in which they began."""
    begun: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        pid, name, rest = match.groups()
        is_write = "write" in name
        if rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            if is_write:
                found.append((name, rest))
        elif "resumed>" in line:
            if not is_write:
                found.append((name, begun.get(pid, "")))
        else:
            found.append((name, rest))
    return found


def unflushed(calls: list[tuple[str, str]], sequence: int) -> bool:
    """Whether the acknowledgement of a record was sent while the block that holds it was not flushed."""
    acknowledgement = rf'\\"seq\\":{sequence}\b'
    sent = [at for at, (_, rest) in enumerate(calls) if ".blk>" not in rest and re.search(acknowledgement, rest)]
    assert sent, f"no acknowledgement of {sequence} was sent"
    before = [(name, rest) for name, rest in calls[: sent[0]] if _BLOCK.search(rest)]
    assert any("write" in name for name, _ in before), "no block was written before the acknowledgement"
    return "write" in before[-1][0]


@pytest.mark.parametrize("is_always", [True, False], ids=["as levelog sets it", "with the server's default"])
async def test_invariant_1_an_acknowledged_batch_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_always: bool
) -> None:
    prepare = "" if is_always else 'sed -i "s/, sync_interval: always//" "$2"'
    launcher, log = traced(tmp_path, nats_program(), prepare)
    monkeypatch.setattr(embedded, "nats_program", lambda: launcher)
    data = DataDir(tmp_path / "data")
    acknowledged: list[int] = []  # of the last record of each batch
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server, await connect(server.url) as connection:
            stream = await ensure_stream(connection, Cluster("c"))
            publisher, writer = BatchPublisher(stream), writer_for(stream)
            for batch in range(1, BATCHES + 1):
                messages = [web_message(writer, f"w{n}", batch) for n in range(10)]
                acknowledged.append(await publisher.publish(messages))
    assert ("sync_interval: always" in (data.nats / "nats-server.conf").read_text()) is is_always
    await until(lambda: json.dumps(f'"seq":{acknowledged[-1]}')[1:-1] in log.read_text(), "the system calls")
    calls = ended_calls(log.read_text())
    assert [unflushed(calls, sequence) for sequence in acknowledged] == [not is_always] * BATCHES


COMMITS = """
import asyncio, os, sys
from sqlalchemy import text
from levelog_store.connect.database import Database

async def main():
    async with await Database.open(sys.argv[1]) as database:
        async with database.transaction() as connection:
            await connection.execute(text("CREATE TABLE t (a int)"))
        for number in range(3):
            async with database.transaction() as connection:
                await connection.execute(text(f"INSERT INTO t VALUES ({number})"))
            os.write(1, f"committed {number}\\n".encode())

asyncio.run(main())
"""


async def test_a_transaction_of_sqlite_that_returned_was_flushed(tmp_path: Path) -> None:
    (tmp_path / "commits.py").write_text(COMMITS)
    launcher, log = traced(tmp_path, sys.executable)
    process = Process([launcher, tmp_path / "commits.py", tmp_path / "levelog.db"], tmp_path / "output")
    await until(lambda: not process.is_running, "the end of the program")
    assert "committed 2" in process.log_tail(), process.log_tail()
    await until(lambda: "committed 2" in log.read_text(), "the system calls")
    calls = ended_calls(log.read_text())
    for number in range(3):
        told = [at for at, (_, rest) in enumerate(calls) if f"committed {number}" in rest]
        before = [name for name, rest in calls[: told[0]] if "levelog.db-wal>" in rest]
        assert before[-1] in {"fsync", "fdatasync"}, calls
