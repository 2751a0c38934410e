"""Writes under way: which levels wait for them, and when the log has shown one."""

from typing import Final

from msgspec import Struct

from levelog_store.decide.decisions import OpenIntent
from levelog_store.rows import ViewParent


class OpenWrites(Struct):
    """Writes that are decided and not settled, by target and key."""

    of: dict[str, dict[str, tuple[ViewParent, int]]] = {}
    """The level that waits, and its partition."""
    with_receipt: set[str] = set()
    """Keys of those whose receipt is folded."""
    _targets: dict[str, str] = {}
    """Their targets, by key."""

    def begin(self, key: str, target: str, level: ViewParent, partition: int, *, has_receipt: bool = False) -> None:
        """Note that a level waits for a write; `has_receipt`: only for the log to show it."""
        self.of.setdefault(target, {})[key] = level, partition
        self._targets[key] = target
        if has_receipt:
            self.with_receipt.add(key)

    def add_receipt(self, key: str) -> None:
        """Note that the receipt of a write is folded, if it is awaited."""
        if key in self._targets:
            self.with_receipt.add(key)

    def end(self, key: str) -> None:
        """Note that nothing waits for a write any more."""
        target = self._targets.pop(key, None)
        if target is None:
            return
        self.with_receipt.discard(key)
        del self.of[target][key]
        if not self.of[target]:
            del self.of[target]


GONE: Final = 0
"""The version in an observation of an absent target."""

_SEEN: Final = ("unchanged", "conflict")
"""Outcomes that tell which version of the target the actuator saw."""


def is_settled(intent: OpenIntent) -> bool:
    """Tell whether the tables show what the intent wrote.

    A folded receipt is enough for a write that failed, for one that changed nothing if the API gave no version, and for
    a target that is not watched. Otherwise the target's row must have that incarnation at or past the version in the
    API's answer, or its deletion. This holds after a conflict too, so that the next round sees the state that caused
    it, and for a delete that found nothing: an earlier request of it may have taken effect.

    No record shows a target that came and went while nobody watched. Its intent settles once an observation in the log
    says that the API does not have it, if the tables do not have it either.
    """
    match intent.state:
        case "pending" | "claimed":
            return False
        case "settled" | "satisfied":
            return True
        case "failed":
            return intent.is_folded
        case _:
            if not intent.is_folded:
                return False
    is_shown_by_log = intent.outcome == "written" or (intent.outcome in _SEEN and intent.result_version > 0)
    is_deleted = intent.verb == "delete" and intent.outcome in ("written", "unchanged", "gone")
    if not (is_shown_by_log or is_deleted) or not intent.is_watched:
        return True
    is_buried = intent.buried_version is not None and intent.shown_uid is None
    if is_deleted:
        return is_buried or intent.shown_uid != intent.result_uid or bool(intent.shown_is_deleting)
    if intent.shown_uid is None or intent.shown_version is None:
        is_past = is_buried and (intent.buried_version or 0) >= intent.result_version
        return is_past or intent.observed_version == GONE
    if intent.shown_uid != intent.result_uid:  # another incarnation is newer only if it came later
        return intent.shown_version > intent.result_version
    return intent.shown_version >= intent.result_version
