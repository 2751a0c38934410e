"""Signs that the log lost history, which count once they have lasted: a server that is cut off may be wrong."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal

from levelog_base.errors import HistoryInDoubt, IdentityMismatch

LOST_QUORUM: Final = timedelta(seconds=25)
"""A nats-server that is cut off from the others answers from its own store, as leader for up to 20 s: it looks every
10 s whether it has heard of a majority within 10 s. Origin: lostQuorumInterval and lostQuorumCheck of nats-server."""

Sign = Literal["gone", "ends before", "other record"]


class Doubts:
    """Signs of a loss that this process has met, each with the time since when nothing has contradicted it.

    With one replica there is nobody whose answer could be old: then each sign counts at once.
    """

    def __init__(self, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._replicas = replicas
        self._clock = clock
        self._since: dict[tuple[Sign, int], float] = {}

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
