"""Where a process can be killed between two side effects, seen from outside: by what passes through its proxies."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from rigs.deployment import Deployment, Role
from rigs.faults import Strike
from rigs.tcpconnection import TcpConnection


class Moment(StrEnum):
    """Before the side effect, or after it and before the process hears of it."""

    BEFORE = "before"
    AFTER = "after"


class SideEffect(StrEnum):
    """What a process does to the rest of the world."""

    PUBLISH = "publish"
    COMMIT = "commit"
    WRITE = "write"


class Seam(NamedTuple):
    """A kind of place in the life of a process; a run passes it any number of times."""

    role: Role
    moment: Moment
    side_effect: SideEffect

    def __str__(self) -> str:
        return f"{self.role}-{self.moment}-{self.side_effect}"


_SIDE_EFFECTS: dict[Role, tuple[SideEffect, ...]] = {
    "ingest": (SideEffect.PUBLISH,),
    "process": (SideEffect.COMMIT,),
    "actuate": (SideEffect.COMMIT, SideEffect.WRITE, SideEffect.PUBLISH),
}
SEAMS = tuple(Seam(role, when, what) for role, effects in _SIDE_EFFECTS.items() for what in effects for when in Moment)
"""Of processes that have one role each."""
SEAMS_TOGETHER = tuple(Seam("run", when, what) for what in SideEffect for when in Moment)
"""Of one process that has all roles: a change and its write pass each of them."""

_PUBLISHED = b"HPUB levelog."  # of a batch each record: what follows the first leaves an unfinished batch behind
_ACKNOWLEDGED = b'{"stream":"'
_COMMIT = b"COMMIT;\0"  # as the driver sends it
_COMMITTED = b"COMMIT\0"  # the tag that PostgreSQL answers


class CrashPoint:
    """Kills the process of a seam when it passes there the nth time from now.

    `has_struck` is true from then on; the process is gone, and what it was doing is cut off at the seam exactly.
    Transactions that only read have no seams.
    """

    def __init__(self, deployment: Deployment, seam: Seam, nth: int) -> None:
        self.has_struck = False
        self._deployment = deployment
        self._role: Role = seam.role
        self._disarm = self._arm(seam, nth)

    def disarm(self) -> None:
        """Strike no more."""
        self._disarm()

    def _strike(self, connection: TcpConnection | None = None) -> None:
        self.has_struck = True
        self._deployment.kill(self._role)
        if connection is not None:
            connection.cut()  # or what is behind the seam would still pass

    def _arm(self, seam: Seam, nth: int) -> Callable[[], None]:
        is_before = seam.moment is Moment.BEFORE
        if seam.side_effect is SideEffect.WRITE:
            api = self._deployment.api[seam.role]
            strike = Strike(call=self._strike, stage="request" if is_before else "answer", is_last=True)
            rule = api.add(strike, lambda request: request.is_write, nth=nth)
            return lambda: api.remove(rule)
        if seam.side_effect is SideEffect.COMMIT:
            proxy, patterns = self._deployment.sql[seam.role], (_COMMIT, _COMMITTED)
        else:
            proxy, patterns = self._deployment.nats[seam.role], (_PUBLISHED, _ACKNOWLEDGED)
        trigger = proxy.on(
            patterns[0] if is_before else patterns[1],
            "client" if is_before else "server",
            self._strike,
            where=lambda connection: connection not in self._deployment.readers,
            is_passed=False,
            nth=nth,
        )
        return lambda: proxy.remove(trigger)
