"""SQLite serves one process: others are refused, and what was committed survives its death."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import insert, select, text, update

from levelog_base.errors import ConfigurationError
from levelog_migrations import upgrade
from levelog_store.connect.database import Database
from levelog_store.tables import key_versions
from rigs.processes import Process
from rigs.waiting import until

MIB: Final = 1024 * 1024

OPEN = """
import asyncio, sys
from levelog_base.errors import ConfigurationError
from levelog_store.connect.database import Database

async def main():
    try:
        async with await Database.open(sys.argv[1]):
            print("opened", flush=True)
            await asyncio.Event().wait()
    except ConfigurationError as error:
        sys.exit(str(error))

asyncio.run(main())
"""

COMMIT = """
import asyncio, sys
from sqlalchemy import insert
from levelog_store.connect.database import Database
from levelog_store.tables import key_versions

async def main():
    async with await Database.open(sys.argv[1]) as database:
        for n in range(1_000_000):
            async with database.transaction(durable=False) as connection:
                for part in "ab":
                    row = {"scope": 1, "index": part, "key": str(n), "version": n}
                    await connection.execute(insert(key_versions).values(row))
            print(n, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "levelog.db"


async def run(script: str, path: Path, tmp_path: Path) -> Process:
    """A process that has written its first line."""
    process = Process([sys.executable, "-c", script, path], tmp_path / "process.log")

    async def has_written() -> bool:
        process.check()
        return "\n" in process.log.read_text()

    await until(has_written, "the first line of a process")
    return process


async def test_a_second_process_is_refused_at_once_with_one_sentence(path: Path, tmp_path: Path) -> None:
    async with await Database.open(f"sqlite:///{path}"):
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPEN, f"sqlite:///{path}", stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(second.communicate(), 30)
    assert second.returncode == 1
    assert said.decode().splitlines() == [
        f"the database {path} is in use by process {os.getpid()}: SQLite serves one process, use PostgreSQL for several"
    ]


@pytest.mark.parametrize("link", ["levelog.db", "link.db"])
async def test_another_process_is_named_by_whichever_path_the_file_is_opened(
    path: Path, tmp_path: Path, link: str
) -> None:
    process = await run(OPEN, path, tmp_path)
    try:
        if link != path.name:
            (tmp_path / link).symlink_to(path)
        with pytest.raises(ConfigurationError, match=f"in use by process {process.pid}"):
            await Database.open(str(tmp_path / link))
    finally:
        process.kill()
    async with await Database.open(str(path)):
        pass


async def test_a_process_can_open_again_what_it_closed(path: Path) -> None:
    for _ in range(2):
        async with await Database.open(str(path)):
            with pytest.raises(ConfigurationError, match="in use"):
                await Database.open(str(path))


async def test_others_may_read_while_one_process_writes(path: Path) -> None:
    await upgrade(str(path))
    async with await Database.open(str(path)) as owner, await Database.open(str(path), read_only=True) as reader:
        async with owner.transaction() as connection:
            await connection.execute(insert(key_versions).values(scope=1, index="i", key="k", version=1))
            async with reader.reading() as beside:
                assert (await beside.execute(select(key_versions.c.key))).scalars().all() == []
        async with reader.reading() as after:
            assert (await after.execute(select(key_versions.c.key))).scalars().all() == ["k"]


async def test_a_file_to_read_is_not_made(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no database file {path}"):
        await Database.open(str(path), read_only=True)
    with pytest.raises(ConfigurationError, match="there is no database file"):
        await Database.open(str(path), read_only=True)


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/absent/levelog.db"):
        await Database.open(f"sqlite:///{tmp_path}/absent/levelog.db")


async def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(content := b"something else, and long enough to be looked at" * 100)  # noqa: ASYNC240
    with pytest.raises(ConfigurationError, match=f"database {path} .*not a database"):
        await Database.open(str(path))
    assert path.read_bytes() == content  # noqa: ASYNC240


async def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    odd = tmp_path / "a b?c#d%20e&f=g é"
    odd.mkdir()
    async with await Database.open(str(odd / "x?mode=ro.db")) as database, database.transaction() as connection:
        await connection.execute(text("CREATE TABLE t (n)"))
    assert (odd / "x?mode=ro.db").exists()


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
async def test_writers_use_the_write_ahead_log_and_sync_what_is_durable(
    path: Path, durable: bool, synchronous: int
) -> None:
    async with await Database.open(str(path)) as database:
        async with database.transaction(durable=not durable):
            pass
        async with database.transaction(durable=durable) as connection:
            settings = {
                name: await connection.scalar(text(f"PRAGMA {name}"))
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }
    assert settings == {"journal_mode": "wal", "synchronous": synchronous, "foreign_keys": 1}


@pytest.mark.parametrize("durable", [True, False])
async def test_a_connection_that_replaces_a_broken_one_waits_for_the_disk_as_well(path: Path, durable: bool) -> None:
    async with await Database.open(str(path)) as database:
        async with database.transaction(durable=durable):
            pass

        async def fail() -> None:
            async with database.transaction(durable=durable) as connection:
                await connection.invalidate()
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            await fail()
        for each in (durable, True):
            async with database.transaction(durable=each) as connection:
                assert await connection.scalar(text("PRAGMA synchronous")) == 1 + each


async def test_only_what_waits_for_the_disk_takes_a_thread_and_the_log_of_writes_stays_small(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = 0
    submit = ThreadPoolExecutor.submit

    def counted(self: ThreadPoolExecutor, *arguments: Any) -> Any:
        nonlocal waits
        waits += 1
        return submit(self, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    await upgrade(str(path))
    async with await Database.open(str(path)) as database:

        async def write(number: int, *, durable: bool) -> None:
            async with database.transaction(durable=durable) as connection:
                row = {"scope": 1, "index": "i", "key": f"{number}", "version": 1}
                await connection.execute(insert(key_versions).values(row | {"key": f"{number}" * 1000}))

        waits = 0
        await write(0, durable=True)
        assert waits == 1
        for number in range(1, 10):
            await write(number, durable=False)
        assert waits == 1
        for number in range(10, 2000):
            await write(number, durable=False)
        assert 5 < waits < 20
        assert path.with_name(f"{path.name}-wal").stat().st_size < 32 * MIB


async def test_a_transaction_waits_for_another_process_that_writes(path: Path) -> None:
    await upgrade(str(path))
    row = {"scope": 1, "index": "i", "key": "k", "version": 1}
    async with await Database.open(str(path)) as owner, await Database.open(str(path), beside=True) as other:
        begun = asyncio.Event()

        async def write() -> None:
            begun.set()
            async with owner.transaction(durable=False) as connection:
                await connection.execute(update(key_versions).values(version=2))

        async with other.transaction() as connection:
            await connection.execute(insert(key_versions).values(row))
            writing = asyncio.create_task(write())
            await begun.wait()
            for _ in range(100):  # the loop goes on meanwhile
                await asyncio.sleep(0.001)
            assert not writing.done()
        await writing
        async with owner.reading() as connection:
            assert await connection.scalar(select(key_versions.c.version)) == 2


async def test_what_was_committed_survives_sigkill_and_nothing_else_does(path: Path, tmp_path: Path) -> None:
    await upgrade(str(path))
    for _ in range(3):
        process = await run(COMMIT, path, tmp_path)
        try:
            before = len(process.log.read_text().splitlines())

            async def has_committed(process: Process = process, before: int = before) -> bool:
                return len(process.log.read_text().splitlines()) > before + 20

            await until(has_committed, "some commits")
        finally:
            process.kill()
        told = {line for line in process.log.read_text().splitlines() if line}
        async with await Database.open(str(path)) as database:
            async with database.reading() as connection:
                rows = (await connection.execute(select(key_versions.c.index, key_versions.c.key))).all()
            assert await check(database) == "ok"
            async with database.transaction() as connection:
                await connection.execute(key_versions.delete())
        kept = {part: {key for index, key in rows if index == part} for part in "ab"}
        assert kept["a"] == kept["b"]
        assert told <= kept["a"]
        assert len(kept["a"] - told) <= 1
        process.log.unlink()


async def check(database: Database) -> object:
    async with database.reading() as connection:
        return await connection.scalar(text("PRAGMA integrity_check"))


async def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for steps in range(1, 8):  # of the event loop, until it is cancelled
        database = await Database.open(str(tmp_path / "a.db"))
        async with database.reading():
            pass
        closing = asyncio.create_task(database.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    async with await Database.open(str(tmp_path / "a.db")):
        pass
