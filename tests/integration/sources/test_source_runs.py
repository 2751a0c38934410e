import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import msgspec
import pytest

from levelog import External, Operator
from levelog.sources import SOURCE_TIME, SourceHandler
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
)
from levelog_ingest.sources.runner import SourceRunner
from levelog_log.appender import Appender
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream
from rigs.assembled import cancel
from rigs.logs import new_log, read_all
from rigs.nats import NatsServer
from rigs.waiting import until

SOON = timedelta(seconds=0.02)


class Branch(External, plural="branches"):
    commit: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.commit == "refused":
            raise LookupError(self.commit)


class Repository:
    """What an external system holds; each look at it is counted, and may be made to fail."""

    def __init__(self, **branches: str) -> None:
        self.branches = branches
        self.looks = 0
        self.error: BaseException | None = None

    def look(self) -> list[Branch]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return [Branch(name=name, commit=commit) for name, commit in self.branches.items()]


def polled(repository: Repository, *, timeout: timedelta = SOURCE_TIME) -> SourceHandler:
    """A source that asks for everything again and again."""
    op = Operator("git")

    @op.source(Branch, every=SOON, timeout=timeout)
    def branches() -> Sequence[Branch]:
        return repository.look()

    return op.sources["branches.external"]


def watched(items: Callable[[], AsyncIterator[Any]], *, timeout: timedelta | None = None) -> SourceHandler:
    """A source that yields what it is told."""
    op = Operator("git")

    @op.source(Branch, timeout=timeout)
    async def branches() -> AsyncIterator[Any]:
        async for item in items():
            yield item

    return op.sources["branches.external"]


@asynccontextmanager
async def recording(source: SourceHandler, stream: LogStream, **options: Any) -> AsyncGenerator[SourceRunner]:
    """A source that runs, cancelled at the end; what ends it before is raised."""
    async with Appender(BatchPublisher(stream)) as appender:
        runner = SourceRunner(source, stream, appender, options.pop("redactor", None) or Redactor(), **options)
        task = asyncio.create_task(runner.run())
        try:
            yield runner
        finally:
            await cancel(task)


async def until_shown(stream: LogStream, **branches: str) -> Sequence[LoggedRecord]:
    """Wait until the log shows just these branches, and return its records."""

    async def is_shown() -> Sequence[LoggedRecord]:
        records = await read_all(stream)
        return records if shown(records) == branches else ()

    return await until(is_shown, f"{branches} in the log")


def shown(records: Sequence[LoggedRecord]) -> dict[str, str]:
    """Branches and their commits when the records of objects are folded."""
    found: dict[str, tuple[int, str]] = {}
    for logged in records:
        match logged.record:
            case ObjectSeen(key=key, version=version, body=body) if version >= found.get(key.name, (0,))[0]:
                found[key.name] = version, msgspec.json.decode(body)["commit"]
            case ObjectDeleted(key=key, version=version) if version >= found.get(key.name, (0,))[0]:
                found.pop(key.name, None)
            case _:
                pass
    return {name: commit for name, (_, commit) in found.items()}


def of_objects(records: Sequence[LoggedRecord]) -> list[tuple[str, str]]:
    """What the records of objects say: `seen` or `deleted`, and the name."""
    return [
        ("deleted" if isinstance(logged.record, ObjectDeleted) else "seen", logged.record.key.name)
        for logged in records
        if isinstance(logged.record, ObjectSeen | ObjectDeleted)
    ]


@pytest.fixture
async def stream(nats_server: NatsServer) -> AsyncGenerator[LogStream]:
    async with new_log(nats_server, partitions=2) as stream:
        yield stream


def phase_of(runner: SourceRunner) -> str:
    return runner.status.phase


async def looked(repository: Repository, times: int) -> None:
    """Wait until the repository was looked at so often from now on."""
    enough = repository.looks + times
    await until(lambda: repository.looks >= enough, f"{times} looks")


async def test_the_first_set_is_a_list(stream: LogStream) -> None:
    async with recording(polled(Repository(main="1", dev="2")), stream):
        records = await until_shown(stream, main="1", dev="2")
        while not isinstance(records[-1].record, SyncFinished):
            records = await read_all(stream)
    kinds = [type(logged.record) for logged in records]
    assert kinds == [SyncStarted, SyncStarted, ObjectSeen, ObjectSeen, SyncFinished, SyncFinished]


async def test_a_poll_that_finds_nothing_new_writes_nothing(stream: LogStream) -> None:
    repository = Repository(main="1")
    async with recording(polled(repository), stream):
        await until_shown(stream, main="1")
        await looked(repository, 1)
        before = await stream.last_sequence()
        await looked(repository, 5)
        assert await stream.last_sequence() == before


async def test_equal_records_are_equal_in_whatever_order_their_mappings_are(stream: LogStream) -> None:
    repository = Repository(main="1")
    labels = [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]

    def look() -> list[Branch]:
        repository.looks += 1
        return [Branch(name="main", commit="1", labels=labels[repository.looks % 2])]

    repository.look = look  # type: ignore[method-assign]
    async with recording(polled(repository), stream):
        await until_shown(stream, main="1")
        await looked(repository, 1)
        before = await stream.last_sequence()
        await looked(repository, 4)
        assert await stream.last_sequence() == before


async def test_only_what_changed_is_recorded_and_what_is_gone_with_its_last_body(stream: LogStream) -> None:
    repository = Repository(main="1", dev="2", old="3")
    async with recording(polled(repository), stream):
        await until_shown(stream, main="1", dev="2", old="3")
        await looked(repository, 1)
        before = await stream.last_sequence()
        repository.branches = {"main": "1", "dev": "4", "feature/x": "5"}
        records = await until_shown(stream, **repository.branches)
        last = [logged for logged in records if logged.sequence > before]
    assert sorted(of_objects(last)) == [("deleted", "old"), ("seen", "dev"), ("seen", "feature/x")]
    [gone] = [logged.record for logged in last if isinstance(logged.record, ObjectDeleted)]
    assert msgspec.json.decode(gone.body)["commit"] == "3"


async def test_after_a_restart_only_what_changed_meanwhile_is_recorded(stream: LogStream) -> None:
    repository = Repository(**{f"b{number}": "1" for number in range(250)})
    async with recording(polled(repository), stream):
        await until_shown(stream, **repository.branches)
        await looked(repository, 1)
    before = await stream.last_sequence()
    del repository.branches["b7"]
    repository.branches["b8"] = "2"
    async with recording(polled(repository), stream):
        records = await until_shown(stream, **repository.branches)
        await looked(repository, 2)
    last = [logged for logged in records if logged.sequence > before]
    assert sorted(of_objects(last)) == [("deleted", "b7"), ("seen", "b8")]
    assert len(last) == await stream.last_sequence() - before


async def test_invariant_2_a_clock_that_is_behind_takes_no_record_back(stream: LogStream) -> None:
    repository = Repository(main="1")
    ahead = datetime.now(UTC) + timedelta(days=1)
    async with recording(polled(repository), stream, clock=lambda: ahead):
        await until_shown(stream, main="1")
        await looked(repository, 1)
    repository.branches = {"main": "2"}
    async with recording(polled(repository), stream):
        await until_shown(stream, main="2")
        repository.branches = {}
        await until_shown(stream)
        repository.branches = {"main": "3"}
        await until_shown(stream, main="3")
    seen = [r.record.version for r in await read_all(stream) if isinstance(r.record, ObjectSeen | ObjectDeleted)]
    assert seen == sorted(set(seen))


async def test_a_list_that_was_not_finished_is_made_again(stream: LogStream) -> None:
    """As after the death of a process in the middle of a set."""
    repository = Repository(main="1", dev="2")
    async with Appender(BatchPublisher(stream)) as appender:
        writer = stream.writer("ingest")
        resource = Branch.resource_type.group_resource
        await appender.append(
            *writer.to_all_partitions(SyncStarted(resource=resource, sync_id="a", time=datetime.now(UTC)))
        )
    async with recording(polled(repository), stream):
        await until_shown(stream, main="1", dev="2")
        await looked(repository, 1)
    ids = [r.record.sync_id for r in await read_all(stream) if isinstance(r.record, SyncFinished)]
    assert len(ids) == stream.partitions


@pytest.mark.parametrize("passes", [None, timedelta(days=-30)], ids=["time passes", "the clock is set back"])
async def test_when_a_baseline_is_due_everything_is_written_again_in_the_versions_that_it_had(
    stream: LogStream, passes: timedelta | None
) -> None:
    repository = Repository(main="1", dev="2")
    now = datetime.now(UTC)
    async with recording(polled(repository), stream, clock=lambda: now):
        await until_shown(stream, main="1", dev="2")
        await looked(repository, 1)
        before = await read_all(stream)
        now += stream.max_age / 2 if passes is None else passes

        async def is_listed_again() -> Any:
            records = await read_all(stream)
            return records if isinstance(records[-1].record, SyncFinished) and len(records) > len(before) else None

        records = await until(is_listed_again, "another list")
    versions = [
        {r.record.key.name: r.record.version for r in some if isinstance(r.record, ObjectSeen)}
        for some in (before, records[len(before) :])
    ]
    assert versions[0] == versions[1]


async def test_an_error_is_told_once_keeps_the_records_and_is_taken_back(
    stream: LogStream, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository(main="1")
    async with recording(polled(repository), stream) as runner:
        await until_shown(stream, main="1")
        repository.error = ConnectionError("git is away")
        await looked(repository, 2)
        assert phase_of(runner) == "retrying"
        records = await until_shown(stream, main="1")
        lost = [r.record for r in records if isinstance(r.record, ContactLost)]
        assert [one.error for one in lost] == ["source git/branches: ConnectionError: git is away"] * stream.partitions
        repository.error = None

        async def is_heard_of() -> bool:
            return isinstance((await read_all(stream))[-1].record, BookmarkNoted)

        await until(is_heard_of, "a mark that the source is heard of")
        assert phase_of(runner) == "watching"
    told = [r for r in caplog.records if r.levelno >= logging.WARNING and "git is away" in r.getMessage()]
    assert len(told) == 1
    assert "test_source_runs.py line" in told[0].getMessage()


class Untold(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), BaseException("odd"), Untold()])
async def test_whatever_a_function_raises_is_its_own(stream: LogStream, error: BaseException) -> None:
    repository = Repository(main="1")
    repository.error = error
    async with recording(polled(repository), stream):
        await looked(repository, 1)
        repository.error = None
        await until_shown(stream, main="1")


async def test_a_record_that_cannot_be_recorded_keeps_what_it_was_and_concerns_no_other(
    stream: LogStream, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository(main="1", dev="1", twice="1")
    async with recording(polled(repository), stream):
        await until_shown(stream, main="1", dev="1", twice="1")

        def look() -> list[Branch]:
            repository.looks += 1
            huge = Branch(name="dev", commit="x" * 9_000_000)
            odd = Branch(name="odd", commit=object())  # type: ignore[arg-type]
            picky = Branch(name="picky", commit="")
            msgspec.structs.force_setattr(picky, "commit", "refused")
            again = [Branch(name="twice", commit="2"), Branch(name="twice", commit="3")]
            return [Branch(name="main", commit="2"), huge, odd, picky, *again, Branch(name="new", commit="1")]

        repository.look = look  # type: ignore[method-assign]
        records = await until_shown(stream, main="2", dev="1", twice="1", new="1")
        await looked(repository, 2)
        records = await read_all(stream)
        [error, *_] = [r.record.error for r in records if isinstance(r.record, ContactLost)]
    largest = stream.connection.max_payload_bytes
    assert error == (
        f"source git/branches: Branch 'dev' cannot be recorded: NATS takes {largest} bytes, its setting max_payload, "
        "and 3 more"
    )
    assert len([r for r in caplog.records if "and 3 more" in r.getMessage()]) == 1


async def test_what_has_no_name_lets_nothing_go(stream: LogStream) -> None:
    repository = Repository(main="1", dev="1")
    async with recording(polled(repository), stream) as runner:
        await until_shown(stream, main="1", dev="1")
        repository.look = lambda: ["main", Branch(name="main", commit="2")]  # type: ignore
        await until_shown(stream, main="2", dev="1")
        assert "something of class str is no Branch" in runner.status.detail


async def test_a_function_that_hangs_is_given_up_and_not_called_beside_itself(stream: LogStream) -> None:
    gate = Event()
    repository = Repository(main="1")
    inside = 0

    def look() -> list[Branch]:
        nonlocal inside
        inside += 1
        assert inside == 1
        gate.wait(60)
        inside -= 1
        return [Branch(name="main", commit="1")]

    repository.look = look  # type: ignore[method-assign]
    async with recording(polled(repository, timeout=timedelta(seconds=0.05)), stream) as runner:
        await until(lambda: "still runs" in runner.status.detail, "a call that is not made")
        gate.set()
        await until_shown(stream, main="1")


async def test_a_generator_yields_sets_and_changes(stream: LogStream) -> None:
    said: asyncio.Queue[Any] = asyncio.Queue()

    async def items() -> AsyncIterator[Any]:
        while True:
            yield await said.get()

    async with recording(watched(items), stream):
        said.put_nowait([Branch(name="main", commit="1"), Branch(name="dev", commit="1")])
        await until_shown(stream, main="1", dev="1")
        said.put_nowait(Branch(name="main", commit="2"))
        await until_shown(stream, main="2", dev="1")
        said.put_nowait(Branch.gone("dev"))
        await until_shown(stream, main="2")
        before = await stream.last_sequence()
        said.put_nowait(Branch(name="main", commit="2"))
        said.put_nowait(Branch.gone("dev"))
        said.put_nowait([Branch(name="main", commit="2")])
        said.put_nowait([Branch(name="new", commit="1")])
        await until_shown(stream, new="1")
        assert of_objects([r for r in await read_all(stream) if r.sequence > before]) == [
            ("seen", "new"),
            ("deleted", "main"),
        ]


async def test_a_generator_that_ends_or_raises_is_begun_again_and_misses_nothing(stream: LogStream) -> None:
    lives = 0

    async def items() -> AsyncIterator[Any]:
        nonlocal lives
        lives += 1
        yield [Branch(name="main", commit=str(lives))]
        if lives == 1:
            return
        if lives == 2:
            raise OSError("the stream broke")
        await asyncio.Event().wait()

    async with recording(watched(items), stream):
        await until_shown(stream, main="3")


async def test_a_set_that_raises_while_it_is_read_is_the_functions_fault(stream: LogStream) -> None:
    lives = 0

    async def items() -> AsyncIterator[Any]:
        nonlocal lives
        lives += 1
        yield (Branch(name="main", commit=str(1 // (lives - 1))) for _ in range(1))
        await asyncio.Event().wait()

    async with recording(watched(items), stream):
        await until_shown(stream, main="1")


async def test_a_generator_that_begins_with_a_change_is_told_what_to_do(stream: LogStream) -> None:
    async def items() -> AsyncIterator[Any]:
        yield Branch(name="main", commit="1")

    async with recording(watched(items), stream) as runner:
        await until(lambda: "has to be the whole set" in runner.status.detail, "what is wrong")
    assert shown(await read_all(stream)) == {}


async def test_a_silent_generator_is_begun_anew_after_its_time_whatever_its_end_raises(stream: LogStream) -> None:
    lives = 0

    async def items() -> AsyncIterator[Any]:
        nonlocal lives
        lives += 1
        yield [Branch(name="main", commit=str(min(lives, 2)))]
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("s3cret")

    left = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context["message"]))
    async with recording(watched(items, timeout=timedelta(seconds=0.2)), stream):
        await until_shown(stream, main="2")
    gc.collect()
    assert left == []


async def test_sources_go_on_after_the_log_was_away(nats_server: NatsServer) -> None:
    repository = Repository(main="1")
    async with new_log(nats_server) as stream, recording(polled(repository), stream):
        await until_shown(stream, main="1")
        nats_server.kill()
        repository.branches = {"main": "2", "dev": "1"}
        await nats_server.start()
        await stream.connection.wait_connected()
        await until_shown(stream, main="2", dev="1")
