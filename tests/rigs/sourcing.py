"""An external system in a test's hands, sources that read it, and a runner that records them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from levelog import External, Operator
from levelog.sources import SOURCE_TIME, SourceHandler
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_ingest.sources.runner import SourceRunner
from levelog_log.appender import Appender
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream
from rigs.assembled import cancel
from rigs.logs import read_all
from rigs.waiting import until

SOON = timedelta(seconds=0.02)


class Branch(External, plural="branches"):
    commit: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


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
