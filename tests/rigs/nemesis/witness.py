"""Reads the log as it is on the servers, with a client of its own, and tells what is no more as it was."""

from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple
from zlib import crc32

import nats
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import ServiceUnavailableError

from rigs.waiting import until

_LINK: Final = "levelog-chain"
_READ_SECONDS: Final = 20.0


class Loss(NamedTuple):
    """Records that are gone from the log, or another one in their place."""

    changed: tuple[int, ...]
    """Sequences of those that were read before."""
    holes: int
    """In the numbers that writers count with."""

    ends_at: int
    """The newest record that there is."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.holes)

    def __str__(self) -> str:
        between = f" between {self.changed[0]} and {self.changed[-1]}" if self.changed else ""
        return (
            f"{len(self.changed)} known records{between} are gone, {self.holes} links are broken; "
            f"the log ends at {self.ends_at}"
        )


class Witness:
    """Remembers each record that it has read, by its sequence.

    Limit: of what was written since the last reading, the end of a chain whose writer has ended may go unnoticed.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._holes: Counter[tuple[str, str]] = Counter()
        self._found = self._known, self._holes

    async def look(self, url: str, stream: str, subjects: str) -> Loss:
        """Read the whole log again, and compare; once more if an election comes between."""
        found: list[Loss] = []

        async def is_read() -> bool:
            with suppress(ServiceUnavailableError, NatsTimeout):
                found.append(await self._look(url, stream, subjects))
            return bool(found)

        await until(is_read, "a witness that has read the log", seconds=120, pause=0.5)
        return found[0]

    async def _look(self, url: str, stream: str, subjects: str) -> Loss:
        found: dict[int, int] = {}
        holes: Counter[tuple[str, str]] = Counter()
        numbers: dict[tuple[str, str], int] = {}
        connection = await nats.connect(url, allow_reconnect=False)
        try:
            config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            reading = await connection.jetstream().subscribe(
                subjects, stream=stream, ordered_consumer=True, config=config
            )
            while True:
                message = await reading.next_msg(timeout=_READ_SECONDS)
                link = (message.headers or {}).get(_LINK, "")
                found[message.metadata.sequence.stream] = crc32(message.data, crc32(link.encode()))
                if link:
                    writer, number, back, _ = link.split(" ")
                    chain = message.subject.split(".", 3)[2], writer
                    holes[chain] += max(int(number) - int(back) - numbers.get(chain, 0), 0)
                    numbers[chain] = max(int(number), numbers.get(chain, 0))
                if message.metadata.num_pending == 0:
                    break
        finally:
            await connection.close()
        first = min(found)  # what is before that may have expired
        changed = tuple(each for each, value in self._known.items() if each >= first and found.get(each) != value)
        self._found = found, holes
        return Loss(changed, (holes - self._holes).total(), max(found))

    def accept(self) -> None:
        """Compare from now on with what the last look has found."""
        self._known, self._holes = self._found
