"""Other code takes over what the tables hold, in memory, by the rules of `levelog_store.owners.promotion`."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from levelog_store.decide.inputreads import KeptIntent
from levelog_store.fold.statereads import StoredState
from levelog_store.owners.handlers import Differences


def promoted(stored: StoredState, found: Differences) -> StoredState:
    """What the tables would hold: without what removed functions left, and with what is left to compute anew."""
    emptied, forgotten = found.emptied, found.forgotten
    return replace(
        stored,
        entries=[(name, entry) for name, entry in stored.entries if entry.index not in emptied],
        keys={place: version for place, version in stored.keys.items() if place[0] not in emptied},
        levels=[row for row in stored.levels if row.view not in forgotten],
        reads=[read for read in stored.reads if read[0] not in forgotten and read[2] not in emptied],
        wakes=[wake for wake in stored.wakes if wake.view not in forgotten],
        unfinished=found.left_after(stored.unfinished, len(stored.folded_to)),
    )


def superseded(intents: Iterable[KeptIntent], found: Differences) -> Iterator[KeptIntent]:
    """The intents, where unclaimed ones of views that changed are withdrawn."""
    for each in intents:
        is_left = each.intent.state == "pending" and each.intent.view in found.changed
        yield replace(each, intent=replace(each.intent, state="superseded")) if is_left else each
