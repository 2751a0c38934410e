"""Writes under way, and the levels that wait for them."""

from msgspec import Struct

from levelog_store.rows import ViewParent


class OpenWrites(Struct):
    """Writes that are decided and not settled, by target and key."""

    of: dict[str, dict[str, tuple[ViewParent, int]]] = {}
    """The level that waits, and its partition."""
    told: set[str] = set()
    """Keys of those whose receipt is folded."""
    _targets: dict[str, str] = {}
    """Their targets, by key."""

    def begin(self, key: str, target: str, level: ViewParent, partition: int, *, is_told: bool = False) -> None:
        """Note that a level waits for a write; `is_told`: only for the log to show it."""
        self.of.setdefault(target, {})[key] = level, partition
        self._targets[key] = target
        if is_told:
            self.told.add(key)

    def tell(self, key: str) -> None:
        """Note that the receipt of a write is folded, if it is awaited."""
        if key in self._targets:
            self.told.add(key)

    def end(self, key: str) -> None:
        """Note that nothing waits for a write any more."""
        target = self._targets.pop(key, None)
        if target is None:
            return
        self.told.discard(key)
        del self.of[target][key]
        if not self.of[target]:
            del self.of[target]
