"""Which objects are shown, where their labels count: those are known from their revisions only."""

from collections.abc import AsyncIterator, Sequence

from levelog.wire.objects import ObjectKey
from levelog.wire.records import LoggedRecord
from levelog_history.revisions import Revision, Revisions
from levelog_history.selection import Selected, has_any, label_selector


class Shown:
    """Which objects are shown: those that are selected, and have the labels in one revision at least."""

    def __init__(self, selected: Sequence[Selected], selector: str) -> None:
        """Raises ConfigurationError for a selector that cannot be read."""
        self.selected = selected
        self._is_labelled = label_selector(selector)
        self._labelled: set[str] | None = set() if selector else None
        """Names of those with the labels, as far as their revisions were taken; None: labels do not count."""

    async def read_ahead(self, records: AsyncIterator[LoggedRecord]) -> None:
        """Take all revisions of the records beforehand."""
        revisions = Revisions(self.selects)
        async for logged in records:
            for entry in revisions.take(logged):
                if isinstance(entry, Revision):
                    self.takes(entry)

    def selects(self, key: ObjectKey) -> bool:
        """Tell whether an object is selected, whatever its labels are."""
        return has_any(self.selected, key)

    def has(self, name: str) -> bool:
        """Tell whether an object is shown."""
        return self.selects(ObjectKey.parse(name)) if self._labelled is None else name in self._labelled

    def takes(self, revision: Revision) -> bool:
        """Tell whether a revision is shown."""
        if not self._is_labelled({} if revision.happened == "unreadable" else revision.manifest()):
            return False
        if self._labelled is not None:
            self._labelled.add(revision.object)
        return True
