"""What came out of a decision, then and now, and in what the two differ."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog_store.decide.decisions import Asked, Decided, Decision

COMPARED: Final = ("status", "round", "desired", "actual", "drift", "keys")


class Outcome(Struct, frozen=True, kw_only=True):
    """What one decision came to; bytes are canonical JSON, so that what is equal is identical."""

    status: str
    reason: str = ""
    round: int
    desired: bytes | None
    actual: bytes | None
    drift: Mapping[str, Sequence[str]]
    """Keys that are missing, extra, changed."""
    keys: tuple[str, ...] = ()
    """Idempotency keys of the intents, in their order; each stands for verb, target, content and round."""
    intents: tuple[Asked, ...] = ()
    """The same in full, as far as they are known."""
    satisfied: tuple[str, ...] = ()
    """Keys of those whose targets held their fields already; not compared, as the status says it."""

    @classmethod
    def of(cls, decided: Decided) -> "Outcome":
        """What was decided now."""
        rows = decided.intents
        return cls(
            status=decided.level.status,
            reason=decided.level.reason,
            round=decided.level.round,
            desired=decided.level.desired,
            actual=decided.level.actual,
            drift=decided.level.differing,
            keys=tuple(row.key for row in rows),
            intents=tuple(Asked(key=r.key, verb=r.verb, target=r.target, body=r.body) for r in rows),
            satisfied=tuple(row.key for row in rows if row.state == "satisfied"),
        )

    @classmethod
    def recorded(cls, past: Decision) -> "Outcome":
        """What was decided then."""
        return cls(
            status=past.status,
            reason=past.reason,
            round=past.round,
            desired=past.desired,
            actual=past.actual,
            drift=past.differing,
            keys=tuple(past.intents),
            satisfied=past.basis.satisfied,
        )

    def with_intents(self, asked: Mapping[str, Asked]) -> "Outcome":
        """The same with its intents in full, as far as they are given."""
        return replace(self, intents=tuple(asked[key] for key in self.keys if key in asked))

    def differs_in(self, other: "Outcome") -> list[str]:
        """Names of the parts that are not identical."""
        return [name for name in COMPARED if getattr(self, name) != getattr(other, name)]
