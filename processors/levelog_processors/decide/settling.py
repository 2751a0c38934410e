"""When the next round of a level comes: the backoff, which grows if a write was undone; pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog.absence import doubled
from levelog_base.wire.canonical import canonical
from levelog_processors.program import MAX_BACKOFF
from levelog_store.decide.decisions import Decided, OpenIntent

LOOKS_APART: Final = timedelta(seconds=1)
"""Between two looks at a level that only the time asks for, or writes under way."""
MANY: Final = 8
"""With so many writes under way, not each that ends is worth a look: a look costs as much as there are of them."""


def is_on_its_way(desired: bytes, before: bytes, now: bytes) -> bool:
    """Tell whether the actual side of a level changed only where it differed, to what is desired, or to nothing."""
    if all(side.startswith(b"{") for side in (desired, before, now)):
        wanted, was, became = map(_parts.decode, (desired, before, now))
        changed = [key for key in was.keys() | became.keys() if was.get(key) != became.get(key)]
        return all(was.get(key) != wanted.get(key) and became.get(key) in (wanted.get(key), None) for key in changed)
    if all(side.startswith(b"[") for side in (desired, before, now)):
        members, had, has = ({bytes(each) for each in _members.decode(side)} for side in (desired, before, now))
        return all((each in has) == (each in members) for each in had ^ has)
    return before == now


_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_members: Final = msgspec.json.Decoder(list[msgspec.Raw])


FIRST_BACKOFF: Final = timedelta(seconds=1)
REFUSED: Final = frozenset({400, 405, 409, 410, 413, 415, 422})
"""Answers that depend on the request: the next answer is most likely the same."""


def backoff(attempts: int, longest: timedelta = MAX_BACKOFF) -> timedelta:
    """Time until the next round if nothing that is read changes: doubled by each round, up to `longest`."""
    return doubled(FIRST_BACKOFF, attempts, longest)


def pause(failures: Sequence[OpenIntent], attempts: int, longest: timedelta = MAX_BACKOFF) -> timedelta | None:
    """Time until a round that failed is followed by another one; None: every effect that it called gave up."""
    lasting = [each for each in failures if (each.verb, each.outcome) != ("call", "failed")]
    if not lasting:
        return None
    is_refused = all(each.outcome == "failed" and each.answer in REFUSED for each in lasting)
    return longest if is_refused else backoff(attempts, longest)


AT_ONCE: Final = 6
"""So many rounds in a row for the same state come without a wait: the first one, and five more."""
CALM: Final = timedelta(minutes=1)
"""A level that stayed in sync for so long was not undone by somebody who does so each time."""
LONGEST_CALM: Final = timedelta(minutes=30)
"""The same where the last two rounds lay apart: twice that, at most this. Argo CD looks every 3 minutes, Flux 10."""
OFTEN: Final = 3
"""A level that was undone so often is not in sync before it is calm."""

FAULT: Final = "!"
"""What `Repeats` are of where a reconcile function raises."""
VIEW_FAULT: Final = "!!"
"""The same of a view."""
FAULTS: Final = (FAULT, VIEW_FAULT)


class Repeats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often in a row a level has written because of one and the same state, or has failed in a function."""

    of: str
    """Digest of desired and actual, or a fault."""
    before: str = ""
    """The same of the rounds before them, if they wanted the same: the actual side alone was another."""
    count: int
    """1: the round was the first for it."""
    at: datetime
    """When the last of these rounds was decided."""
    since: datetime | None = None
    """When the first round was of those that failed, one after the other; None: it is the only one."""
    retries: int = 0
    """How many of these rounds followed one that had failed."""
    gap: timedelta = timedelta(0)
    """Between the last two rounds."""
    by: str = ""
    """Who undid it before the last round, as people are told; empty: nobody is known to."""
    undone: int = 0
    """Before how many of these rounds in a row somebody was."""

    @classmethod
    def read(cls, text: str | None) -> "Repeats | None":
        """What a level's row keeps; None: it wrote nothing yet."""
        return _decoder.decode(text) if text else None

    @property
    def text(self) -> str:
        """As a level's row keeps it."""
        return canonical(self).decode()

    @property
    def succeeded(self) -> "Repeats":
        """Once a round did not fail: those before it count as that one."""
        count = self.count - self.retries
        return Repeats(of=self.of, count=count, at=self.at, gap=self.gap, by=self.by, undone=self.undone)

    @property
    def calm_at(self) -> datetime:
        """When nobody can be said to undo it any more."""
        return self.at + min(max(CALM, 2 * self.gap), LONGEST_CALM)

    @property
    def calmed(self) -> "Repeats | None":
        """What is left of it then: since when, to tell how far apart two rounds are."""
        return None if self.of in FAULTS else Repeats(of=self.of, count=0, at=self.at)

    def is_contested(self, now: datetime) -> bool:
        """Tell whether somebody who is known undoes it again and again, so that it is not in sync although it looks so.

        A level may also write step by step, and somebody may delete what it makes: that is no contest.
        """
        return self.undone >= OFTEN and now < self.calm_at

    def covers(self, state: str) -> bool:
        """Tell whether rounds for that state are among those counted: two states may lead to each other for ever."""
        return state in (self.of, self.before)

    def then(self, of: str, now: datetime, *, is_retry: bool, wants_same: bool = True, by: str = "") -> "Repeats":
        """After another round that wrote or raised.

        `is_retry` says that the one before it has failed, `wants_same` that the desired side is as it was.
        """
        before = self.before if of == self.of else self.of if wants_same and not {of, self.of} & {*FAULTS} else ""
        if not self.covers(of) or (of != self.of and is_retry):
            return Repeats(of=of, before=before, count=1, at=now)
        if not is_retry or self.count == 0:
            gap = max(now - self.at, timedelta(0))
            undone = self.undone + 1 if by and self.count else 0
            count = self.succeeded.count + 1
            return Repeats(of=of, before=before, count=count, at=now, gap=gap, by=by, undone=undone)
        since, retries = self.since or self.at, self.retries + 1
        return replace(self, count=self.count + 1, at=now, since=since, retries=retries, gap=timedelta(0))


def is_undone(decided: Decided) -> bool:
    """Tell whether a decision writes once more for one and the same state, although nothing refused it before."""
    last = Repeats.read(decided.level.repeats)
    if last is None or last.count < 2 or last.of in FAULTS:
        return False
    if any(each.outcome in ("failed", "conflict") for each in decided.basis.intents):
        return False
    return any(row.state == "pending" and row.verb != "event" for row in decided.intents)


_decoder: Final = msgspec.json.Decoder(Repeats)
