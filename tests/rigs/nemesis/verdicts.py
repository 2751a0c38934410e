"""What must hold after each fault, and a line for the table that says whether it does."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg

from levelog_base.errors import HistoryLost
from levelog_log.reader import Reader
from levelog_log.stream import open_stream
from levelog_log.transport.connection import connect
from rigs.deployment import UNSETTLED
from rigs.natscluster import NAMES as SERVERS
from rigs.nemesis.faults import Excuse, Fault
from rigs.nemesis.site import Site
from rigs.nemesis.supervised import Line
from rigs.nemesis.witness import Loss, Witness
from rigs.waiting import until

CHILDREN_SECONDS: Final = 30.0
"""From the end of a fault on, until the children are as wanted."""
EDITS_BEFORE_SECONDS: Final = 2.0
"""Edits go on for so long before a fault, and during it."""
SETTLED_SECONDS: Final = 180.0
_LOOKS_AGAIN: Final = 3
_LOOK_AGAIN_SECONDS: Final = 5.0
_BATCH: Final = timedelta(seconds=0.2)
_READINGS: Final = 6
"""Each from a server that NATS chooses."""
RESET: Final = "the tables are folded again from the beginning of the log"
LOSSES: Final = (
    *("history is missing", "which was written later", "repeats one up to", "a second history"),
    *(": it was rolled back", "log was rolled back", "was made anew", "is gone from NATS"),
)
"""In which words levelog names what the log has lost: docs/recovery.md."""

DOUBT: Final = "before that is believed"
"""In a message about a loss that may be none: a server that is cut off would say the same."""


class Verdict(NamedTuple):
    """What came of a fault: seconds until the children were right, and until nothing was left to do."""

    fault: str
    children_seconds: float
    settled_seconds: float
    wrong: tuple[str, ...]
    noted: tuple[str, ...]


class Judge:
    """Looks at everything after each fault."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._witness = Witness()
        self._revision = 0
        self._newest: dict[str, int] = {}
        self._called: Counter[tuple[str, ...]] = Counter()

    async def until_settled(self) -> tuple[float, float]:
        """Wait until children are as wanted, and until nothing is left to do; returns after how many seconds."""
        began = time.monotonic()
        await until(self._children_are_right, "children as wanted", seconds=SETTLED_SECONDS, pause=0.1)
        right = time.monotonic() - began
        await until(self._is_settled, "everything settled", seconds=SETTLED_SECONDS, pause=0.2)
        return right, time.monotonic() - began

    async def verdict(self, fault: Fault) -> Verdict:
        """Wait until everything is settled after a fault, and say what is wrong."""
        site, wrong, noted = self._site, list[str](), list[str]()
        right = settled = SETTLED_SECONDS
        try:
            right, settled = await self.until_settled()
            await until(self._is_replicated, "three servers that have the whole log", seconds=120, pause=0.5)
        except TimeoutError as error:
            wrong.append(f"{error}: {await self._left()}")
        if CHILDREN_SECONDS < right < SETTLED_SECONDS:
            wrong.append(f"children were right after {right:.0f} s only")
        self._judge_writes(fault, wrong, noted)
        self._judge_calls(fault, wrong, noted)
        if site.processes.away:
            wrong.append(f"ended for good: {', '.join(site.processes.away)}")
        if site.processes.ended:
            noted.append(f"ended by itself: {'; '.join(site.processes.ended)}")
            site.processes.ended.clear()
        await self._judge_log(wrong, noted)
        site.processes.settle()
        return Verdict(fault.name, right, settled, tuple(wrong), tuple(noted))

    async def look(self) -> None:
        """Take what there is as given."""
        await self.verdict(Fault("", "start", _nothing))

    def _judge_writes(self, fault: Fault, wrong: list[str], noted: list[str]) -> None:
        for change in self._site.sandbox.changes("configmaps", since=self._revision):
            self._revision = change.revision
            if change.after is not None and (edition := _edition(change.after.body)):
                name = change.after.name
                if edition < self._newest.get(name, 0):
                    said = f"{name} was written back from edition {self._newest[name]} to {edition}"
                    (noted if _is_excused(fault, "older") else wrong).append(said)
                self._newest[name] = max(edition, self._newest.get(name, 0))

    def _judge_calls(self, fault: Fault, wrong: list[str], noted: list[str]) -> None:
        lines = [line.split() for line in self._site.calls.read_text().splitlines()]
        keys: Counter[tuple[str, ...]] = Counter(("key", key) for key, *_ in lines)
        editions: Counter[tuple[str, ...]] = Counter(("edition", *rest) for _, *rest in lines)
        for what, count in (keys + editions).items():
            if count > max(1, self._called[what]):
                said = f"announced {count} times: {' '.join(what)}"
                (noted if _is_excused(fault, "again") else wrong).append(said)
        self._called = keys + editions

    async def _judge_log(self, wrong: list[str], noted: list[str]) -> None:
        site = self._site
        lines = site.processes.new_lines()
        said = ""
        if loss := await self._loss():
            noted.append(f"NATS: {loss}{await self._copies()}")
            site.put_all()  # a break of a chain shows once its writer goes on
            await self.until_settled()
            lines += site.processes.new_lines()
            said = await self._named_by_reader()
            noted.append(f"to who reads the log from its beginning, levelog says: {said or 'nothing'}")
        if site.damaged:
            await self._replace_damaged()
            if loss and not (loss := await self._loss()):
                noted.append("of one copy only: made good by a server with an empty disk")
        self._witness.accept()
        about = [line for line in lines if any(words in line.message for words in LOSSES)]
        named = [line for line in about if DOUBT not in line.message]
        if len(about) > len(named):
            noted.append("doubted for a while that the log was whole")
        if loss and not (named or said):
            wrong.append("the loss is not named")
        if named:
            (noted if said or loss else wrong).append(f"named: {_shown(named)}")
        if resets := [line for line in lines if RESET in line.message]:
            (noted if loss else wrong).append(f"tables folded anew: {_shown(resets)}")
        if broken := [line for line in lines if "Traceback" in line.message]:
            wrong.append(f"a traceback: {_shown(broken)}")

    async def _replace_damaged(self) -> None:
        """As docs/recovery.md says: stop it, empty its folder, start it, and wait until it has caught up."""
        for name in self._site.damaged:
            await self._site.nats.servers[name].start_empty()
        self._site.damaged.clear()
        await until(self._is_replicated, "three servers that have the whole log", seconds=120, pause=0.5)

    async def _loss(self) -> Loss:
        """What the log has lost; a server that lacks what others have does not count, if that passes."""
        url, site = self._site.nats.servers["a"].url, self._site
        loss = await self._witness.look(url, site.stream, site.subjects)
        for _ in range(_LOOKS_AGAIN):
            if not loss:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            loss = await self._witness.look(url, site.stream, site.subjects)
        return loss

    async def _children_are_right(self) -> bool:
        return self._children() == self._wanted()

    def _children(self) -> dict[str, int]:
        found = self._site.sandbox.user.list("configmaps")
        return {each["metadata"]["name"]: edition for each in found if (edition := _edition(each))}

    def _wanted(self) -> dict[str, int]:
        wanted = self._site.wanted.items()
        return {f"{name}-{n}": edition for name, (edition, copies) in wanted for n in range(copies)}

    async def _is_settled(self) -> bool:
        return self._site.processes.away == [] and not await self._left() and await self._children_are_right()

    async def _left(self) -> str:
        """What is left to do."""
        left: list[str] = []
        told = {tuple(line.split()[1:]) for line in self._site.calls.read_text().splitlines()}
        if unsaid := [name for name, (edition, _) in self._site.wanted.items() if (name, str(edition)) not in told]:
            left.append(f"not announced: {', '.join(unsaid)}")
        if (children := self._children()) != (wanted := self._wanted()):
            left.append(f"children {children}, wanted {wanted}")
        try:
            if count := await self._site.pair.ask(UNSETTLED):
                left.append(f"{count} levels and intents not settled")
        except (OSError, asyncpg.PostgresError, TimeoutError) as error:
            left.append(f"PostgreSQL: {error!r}")
        return "; ".join(left)

    async def _is_replicated(self) -> bool:
        copies = await self._site.nats.copies(self._site.stream)
        return len(copies) == len(SERVERS) and len({copy.last_seq for copy in copies.values()}) == 1

    async def _copies(self) -> str:
        """How many records each server has, if they differ."""
        copies = await self._site.nats.copies(self._site.stream)
        return f"; each server has {copies}" if len({copy.messages for copy in copies.values()}) > 1 else ""

    async def _named_by_reader(self) -> str:
        """How levelog names the loss to who reads the log from its beginning, from whichever server, or asks doctor."""
        async with await connect(self._site.nats.servers["a"].url) as connection:
            stream = await open_stream(connection, self._site.cluster)
            for _ in range(_READINGS):
                try:
                    async with Reader(stream) as reader:
                        await until(partial(_is_read, reader), "the end of the log")
                        if reader.chains and reader.chains.breaks:
                            return "; ".join(map(str, reader.chains.breaks[:3]))
                except HistoryLost as lost:
                    return str(lost)
            missing = (await stream.state()).missing
        return f"the log lacks {missing} records" if missing else ""


async def _is_read(reader: Reader) -> bool:
    await reader.next_batch(timeout=_BATCH)
    return await reader.confirm() >= await reader.stream.last_sequence()


async def judged(folder: Path, seed: int, faults: Iterable[Fault]) -> AsyncGenerator[Verdict]:
    """Start everything, and make one fault after the other; what came of each. Edits are drawn by the seed."""
    async with Site(folder, seed) as site:
        judge = Judge(site)
        await judge.look()
        for fault in faults:
            site.is_edited.set()
            await asyncio.sleep(EDITS_BEFORE_SECONDS)
            site.put_all()  # something is under way as it begins, and to be done when it ends
            await fault.act(site)
            site.is_edited.clear()
            site.put_all()
            yield await judge.verdict(fault)


def _edition(body: dict[str, Any]) -> int:
    return int(body.get("data", {}).get("edition", 0))


def _is_excused(fault: Fault, excuse: Excuse) -> bool:
    return excuse in fault.excuses


def _shown(lines: list[Line]) -> str:
    """Each message once."""
    return "; ".join(sorted({f"{line.process.rpartition('-')[0] or line.process}: {line.message}" for line in lines}))


async def _nothing(_: Site) -> None:
    await asyncio.sleep(0)
