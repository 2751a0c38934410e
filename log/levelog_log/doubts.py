"""Signs that the log lost history, which count once they have lasted: a server that is cut off may be wrong."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from levelog_base.errors import HistoryInDoubt, HistoryLost, IdentityMismatch
from levelog_base.wire.records import LoggedRecord

LOST_QUORUM: Final = timedelta(seconds=25)
"""A nats-server that is cut off from the others answers from its own store, as leader for up to 20 s: it looks every
10 s whether it has heard of a majority within 10 s. Origin: lostQuorumInterval and lostQuorumCheck of nats-server."""

Sign = Literal["gone", "ends before", "other record"]
KnownBy: TypeAlias = Literal["read", "acknowledged"]
"""How a process knows of a record of the log."""


class Doubts:
    """Signs of a loss that this process has met, each with the time since when nothing has contradicted it.

    With one replica there is nobody whose answer could be old: then each sign counts at once.
    """

    def __init__(self, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._replicas = replicas
        self._clock = clock
        self._since: dict[tuple[Sign, int], float] = {}

    def check_end(self, stream: str, last: int, known: int, known_by: KnownBy) -> None:
        """Raise HistoryLost if a stream that ends at `last` lacks a known record; HistoryInDoubt while it may not."""
        if last < known:
            said = f"stream {stream} ends at {last}, before {known}, which was {known_by}: it was rolled back"
            raise self.loss("ends before", known, HistoryLost(said))
        self.dispel("ends before", last)

    def check_record(
        self, stream: str, sequence: int, found: LoggedRecord | None, known_id: str, known_by: KnownBy
    ) -> None:
        """The same, if what was found at a sequence is not the record that is known."""
        if found is None or found.record_id != known_id:
            said = (
                f"record {sequence} of stream {stream} is another one than was {known_by}: it was rolled back and "
                "written again"
            )
            raise self.loss("other record", sequence, HistoryLost(said))
        self.dispel("other record", sequence)

    def loss(self, sign: Sign, position: int, error: IdentityMismatch) -> IdentityMismatch | HistoryInDoubt:
        """The error itself once the sign has lasted for `LOST_QUORUM`, until then one that is retried."""
        lasted = self._clock() - self._since.setdefault((sign, position), self._clock())
        if self._replicas == 1 or lasted >= LOST_QUORUM.total_seconds():
            return error
        return HistoryInDoubt(
            f"{error}, or a server of NATS that is cut off from the others says so: asked again for "
            f"{LOST_QUORUM.total_seconds() - lasted:.0f} s before that is believed"
        )

    def dispel(self, sign: Sign, up_to: int = 0) -> None:
        """Forget a sign at all positions up to this one, since the log shows the contrary."""
        for each in [each for each in self._since if each[0] == sign and each[1] <= up_to]:
            del self._since[each]
