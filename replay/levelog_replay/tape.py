"""Records of the log, handed out as far as each partition was folded at some moment."""

from collections.abc import AsyncIterator, Sequence

from levelog.records import LoggedRecord


class Tape:
    """Takes batches of records in the order of the log, and gives out those that belong before a moment."""

    def __init__(self, batches: AsyncIterator[list[LoggedRecord]]) -> None:
        self._batches = batches
        self._waiting: list[LoggedRecord] = []
        self.position = 0
        """Sequence of the last record that was read."""
        self.records = 0
        """How many were given out."""

    async def up_to(self, folded: Sequence[int]) -> list[LoggedRecord]:
        """The records up to a sequence in each partition that were not given out yet, in the order of the log.

        Where processors are not equally far, those of the ones ahead wait here: as many as lie between the two.
        """
        end = max(folded, default=0)
        while self.position < end:
            batch = await anext(self._batches, None)
            if batch is None:
                break
            self._waiting += batch
            self.position = batch[-1].sequence
        taken = [logged for logged in self._waiting if logged.sequence <= folded[logged.partition]]
        if len(taken) == len(self._waiting):
            self._waiting = []
        else:
            self._waiting = [logged for logged in self._waiting if logged.sequence > folded[logged.partition]]
        self.records += len(taken)
        return taken
