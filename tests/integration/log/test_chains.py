"""What a real log lost or reordered inside is named by its readers, of some partitions too."""

from datetime import timedelta
from pathlib import Path

import pytest

from levelog_base.wire.objects import Partition, Sequence
from levelog_log.chains import ChainWriter
from levelog_log.reader import Reader
from rigs.logs import linked, new_log, web_message, writer_for
from rigs.nats import NatsServer
from rigs.restoring import restore, write_two_histories
from rigs.waiting import until

ALL = [None, [Partition(0), Partition(1)]]
WHICH = pytest.mark.parametrize("partitions", ALL, ids=["all", "some partitions"])


async def read(reader: Reader, end: int) -> list[tuple[str, int, int]]:
    """Read up to a record, and return what was found to be broken."""

    async def is_read() -> bool:
        await reader.next_batch()
        return reader.position >= end

    await until(is_read, f"record {end}")
    assert reader.chains is not None
    return [(each.kind, each.after, each.before) for each in reader.chains.breaks]


@WHICH
async def test_records_that_were_stored_in_another_order_are_named(
    nats_server: NatsServer, partitions: list[Partition] | None
) -> None:
    async with new_log(nats_server, partitions=2) as stream:
        writer = writer_for(stream)
        messages = linked(ChainWriter(Sequence(0)), [web_message(writer, "w", version) for version in range(1, 7)])
        for at in (0, 1, 3, 2, 4, 5, 5):
            await stream.connection.ask([messages[at]], "a record", timedelta(seconds=10))
        async with Reader(stream, partitions=partitions) as reader:
            found = await read(reader, 7)
        assert found == [("missing", 2, 3), ("out of order", 3, 4), ("repeated", 6, 7)]


@WHICH
async def test_another_history_under_the_same_sequences_is_named(
    nats_server: NatsServer, tmp_path: Path, partitions: list[Partition] | None
) -> None:
    """Its reader knows nothing but what it read: no id of a newest record, and no lost connection."""
    async with new_log(nats_server, partitions=2) as stream:
        await write_two_histories(nats_server, stream, tmp_path)
        async with Reader(stream, partitions=partitions) as reader:
            assert await read(reader, 20) == []
        await restore(nats_server, stream, tmp_path)
        async with Reader(stream, start=Sequence(21), partitions=partitions) as going_on:
            going_on.chains = reader.chains
            found = await read(going_on, 30)
        assert found
        assert {kind for kind, _, _ in found} == {"second history"}
