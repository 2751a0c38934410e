"""The nats-server that levelog brings along: who may use it, what it keeps, and that it never outlives its parent."""

import asyncio
import fcntl
import json
import os
import resource
import signal
import stat
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest
from sqlalchemy import text

from levelog.kinds import ServedKind
from levelog_base.errors import ConfigurationError, Unavailable
from levelog_cli.servers import data_dir, embedded
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.embedded import EmbeddedNats
from levelog_log.transport.connection import connect
from levelog_store.connect.database import Database
from rigs.ports import is_listening
from rigs.processes import Process
from rigs.waiting import until

HOLDER = """
import asyncio, sys
from pathlib import Path
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.embedded import EmbeddedNats

async def main() -> None:
    data = DataDir(Path(sys.argv[1]))
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server:
            print(server.url, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def ends(server: str) -> None:
    """Wait until nothing listens where a server did."""
    port = int(server.rpartition(":")[2])
    await until(lambda: not is_listening(port), f"the end of {server}")


async def holder(folder: Path) -> tuple[Process, str]:
    """A process that runs an embedded server, and the server's URL."""
    log = folder.parent / "holder.log"
    log.write_text("")
    process = Process([sys.executable, "-c", HOLDER, folder], log)

    async def started() -> str:
        process.check()
        return log.read_text().strip()

    return process, await until(started, "an embedded nats-server")


async def test_the_embedded_server_syncs_and_takes_large_messages_from_whoever_has_the_token(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server:
            without_token = f"nats://{server.url.rpartition('@')[2]}"
            with pytest.raises(ConfigurationError, match="refused the credentials"):
                await connect(without_token)
            assert data.running_nats_url() == server.url
            async with await connect(server.url) as connection:
                assert connection.max_payload_bytes == 8 * 1024 * 1024
                assert "error" not in json.loads((await connection.request("$JS.API.INFO")).data)
            assert "sync_interval: always" in (data.nats / "nats-server.conf").read_text()
            for secret in (data.nats_url_file, data.nats / "nats-server.conf", data.redaction_key_file()):
                assert stat.S_IMODE(secret.stat().st_mode) == 0o600, secret
            assert stat.S_IMODE(data.path.stat().st_mode) == 0o700
        assert data.running_nats_url() == ""


async def test_a_directory_with_wide_rights_gets_narrow_files(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    before = os.umask(0)
    try:
        data.path.mkdir()
        data.nats.mkdir()
        (data.path / "levelog.db").touch(mode=0o666)
        (data.path / "levelog.db-wal").touch(mode=0o666)
        with data.claim() as lock:
            async with EmbeddedNats(data, lock), await Database.open(data.database_url) as database:
                async with database.transaction() as connection:
                    await connection.execute(text("CREATE TABLE t (x int)"))
                found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in data.path.iterdir()}
        fresh = tmp_path / "fresh.db"
        async with await Database.open(f"sqlite:///{fresh}"):
            assert stat.S_IMODE(fresh.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert {name: mode for name, mode in found.items() if mode & 0o077 and name != ".gitignore"} == {}
    assert {"levelog.db", "levelog.db-wal", "nats"} <= found.keys()


async def test_what_it_acknowledged_is_there_after_both_were_killed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    process, _ = await holder(folder)
    client = await nats.connect(DataDir(folder).running_nats_url(), allow_reconnect=False)
    stream = client.jetstream()
    await stream.add_stream(name="kept", subjects=["kept"])
    await stream.publish("kept", b"written")
    process.kill()
    await client.close()
    again, _ = await holder(folder)  # at once: it waits for the killed one's server to be gone
    client = await nats.connect(DataDir(folder).running_nats_url(), allow_reconnect=False)
    try:
        assert (await client.jetstream().get_msg("kept", seq=1)).data == b"written"
    finally:
        await client.close()
        again.stop()


async def test_it_is_gone_after_its_parent_was_killed(tmp_path: Path) -> None:
    process, server = await holder(tmp_path / "data")
    async with await connect(server):
        process.kill()
        await ends(server)


async def test_it_is_gone_after_its_stop_was_cancelled(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    with data.claim() as lock:
        server = EmbeddedNats(data, lock)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(server)
            pid = server.pid
            os.kill(pid, signal.SIGSTOP)
            stopping = asyncio.create_task(stack.pop_all().aclose())
        await asyncio.wait({stopping}, timeout=0.1)
        stopping.cancel()
        await asyncio.wait({stopping})
        with pytest.raises(ProcessLookupError):  # collected, too
            os.kill(pid, 0)
        await ends(server.url)


async def test_when_it_ends_by_itself_its_last_words_are_told(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server:
            watching = asyncio.create_task(server.watch())
            os.kill(server.pid, 15)
            with pytest.raises(Unavailable, match=r"embedded nats-server ended with status .*: .*Server Exiting"):
                await watching


async def test_without_its_log_it_runs_on_and_has_no_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LOOK_SECONDS", 0.01)
    data = DataDir(tmp_path / "data")
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server:
            (data.path / "nats-server.log").unlink()
            watching = asyncio.create_task(server.watch())
            await asyncio.wait({watching}, timeout=0.1)
            assert not watching.done()
            os.kill(server.pid, 15)
            with pytest.raises(Unavailable, match=r"embedded nats-server ended with status .*: it said nothing"):
                await watching


async def test_when_it_cannot_write_that_is_told(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as server:
            client = await nats.connect(server.url)
            stream = client.jetstream()
            await stream.add_stream(name="full", subjects=["full"])
            await stream.publish("full", b"x" * 10_000)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))  # as a disk that is full
            for _ in range(10):
                await client.publish("full", b"x" * 10_000)
            await client.flush()
            with pytest.raises(Unavailable, match=r"cannot write to .*/data/nats, and stores no more: .*too large"):
                await server.watch()
            await client.close()


async def test_when_it_cannot_start_its_last_words_are_told(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    with data.claim() as lock:
        (data.nats / "jetstream").parent.mkdir()
        (data.nats / "jetstream").write_text("in the way")
        with pytest.raises(Unavailable, match=r"did not start: it ended with status 1: Can't start JetStream: "):
            async with EmbeddedNats(data, lock):
                pass


async def test_a_directory_stays_claimed_as_long_as_its_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataDir(tmp_path)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, f"{os.getpid()}\n".encode())
    async with EmbeddedNats(data, lock):
        os.close(lock)
        with monkeypatch.context() as impatient:
            impatient.setattr(data_dir, "FREE_SECONDS", 0.1)
            with pytest.raises(ConfigurationError, match="in use"), data.claim():
                pass
    with data.claim():
        pass


async def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigurationError, match=r"cannot be written: Not a directory"),
        DataDir(tmp_path / "file" / "data").claim(),
    ):
        pass


def test_the_redaction_key_stays_the_same(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    with data.claim():
        key = data.redaction_key_file().read_text()
    with data.claim():
        assert data.redaction_key_file().read_text() == key
    assert len(key.strip()) == 64


def test_a_full_disk_leaves_the_note_of_kinds_as_it_was(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    kinds = [ServedKind(group="", version="v1", plural="pods", kind="Pod", singular="pod", namespaced=True)]
    data.keep_kinds(kinds)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        data.keep_kinds(kinds * 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert data.known_kinds() == kinds
    assert [file.name for file in data.path.iterdir()] == ["kinds.json"]
