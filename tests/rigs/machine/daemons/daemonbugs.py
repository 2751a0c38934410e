"""Bugs to plant into what daemons are made of, as `bugs` has them of levels."""

from collections.abc import Collection, Generator, Sequence
from datetime import timedelta
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from levelog.calls.executor import Failure
from levelog.handlers.runs import DaemonHandler
from levelog_actuator import daemoncalls
from levelog_actuator.daemoncalls import Daemons
from levelog_actuator.effects import EffectCaller, Effects
from levelog_actuator.results import Later, Result
from levelog_store.actuate.claims import CLAIMED, ClaimedIntent
from levelog_store.dialects import change, now
from levelog_store.rows import Scope
from levelog_store.tables import intents
from rigs.machine.bugs import Bug, replaces
from rigs.machine.edges.edgebugs import given_back_by_anybody, under_any_claim
from rigs.machine.laboratory import Laboratory
from rigs.machine.planting import Planted


async def _keep(connection: Any, scope: Scope, intent: ClaimedIntent, progress: bytes, *conditions: Any) -> bool:
    changed = await change(connection, scope, intents, intents.c.key == intent.key, *conditions, progress=progress)
    return changed == 1


@replaces("keep_progress", daemoncalls)
async def kept_by_anybody(connection: Any, scope: Scope, _: str, intent: ClaimedIntent, progress: bytes) -> bool:
    """State is kept although another actuator has claimed the run."""
    return await _keep(connection, scope, intent, progress)


@replaces("keep_progress", daemoncalls)
async def kept_under_any_claim(
    connection: Any, scope: Scope, owner: str, intent: ClaimedIntent, progress: bytes
) -> bool:
    """State is kept although the actuator lost the claim that it is of, and has another one."""
    table, lasts = intents.c, intents.c.expires_at > now(connection.dialect)
    return await _keep(connection, scope, intent, progress, table.state == CLAIMED, table.owner == owner, lasts)


def ended_under_any_claim(_: Laboratory[Any]) -> Generator[None]:
    """A run ends by the receipt of a claim that its actuator lost, since it has another one."""
    with under_any_claim():
        yield


@replaces("keep_progress", daemoncalls)
async def kept_after_the_claim(
    connection: Any, scope: Scope, owner: str, intent: ClaimedIntent, progress: bytes
) -> bool:
    """State is kept although the claim has ended, so that another actuator may be about to claim the run."""
    table = intents.c
    is_held = table.state == CLAIMED, table.owner == owner, table.claim == intent.claim
    return await _keep(connection, scope, intent, progress, *is_held)


@replaces("begin", Effects)
def goes_on_when_it_is_claimed_again(real: Any, self: Effects, intent: ClaimedIntent, since: float) -> None:
    """A run whose claim was lost goes on, with what it knows, when its actuator claims it again."""
    if intent.key not in self.begun:
        real(self, intent, since)


@replaces("run", Daemons)
async def state_is_not_handed_over(real: Any, self: Daemons, intent: ClaimedIntent, *given: Any) -> Any:
    """A run that is claimed again begins with the state that the run before it ended with."""
    return await real(self, replace(intent, progress=None), *given)


@replaces("_last_state", Daemons)
async def ends_leave_no_state(*_: object) -> None:
    """A run that follows on one that ended begins without a state."""


@replaces("is_finished", DaemonHandler)
def runs_again_after_it_returned(*_: Any) -> Any:
    """A daemon that returned is started again."""
    return False


def ends_are_not_told(_: Laboratory[Any]) -> Generator[None]:
    """A daemon goes on when its object is gone, or does not fit any more."""
    shown = getattr(daemoncalls, "_Daemon")  # noqa: B009 - private to its module
    real = shown.show

    def show(self: Any, values: Collection[Any]) -> None:
        if values or self.object is None:
            real(self, values)

    with patch.object(shown, "show", show):
        yield


@replaces("lose", Daemons)
def losses_are_not_told(*_: Any) -> None:
    """A daemon goes on when its claim is lost."""


@replaces("_failed", EffectCaller)
def withdrawn_with_its_state(real: Any, self: EffectCaller, call: Any, failure: Failure) -> Result:
    """A run that failed waits as other calls do, and is withdrawn, with its state, when nobody wants it."""
    result: Result = real(self, call, failure)
    return replace(result, is_doubtful=False, delay=timedelta(0)) if isinstance(result, Later) else result


def _planted(bug: Bug, *, examples: int, seed: int = 0) -> Planted:
    return Planted(bug, (18,), examples, seed, machine="daemons")


DAEMON_BUGS: Final[Sequence[Planted]] = (
    _planted(kept_by_anybody, examples=20),
    _planted(kept_under_any_claim, examples=40),
    _planted(ended_under_any_claim, examples=40),
    _planted(kept_after_the_claim, examples=20),
    _planted(goes_on_when_it_is_claimed_again, examples=20),
    _planted(state_is_not_handed_over, examples=20),
    _planted(ends_leave_no_state, examples=20),
    _planted(runs_again_after_it_returned, examples=60, seed=2),
    _planted(ends_are_not_told, examples=20),
    _planted(losses_are_not_told, examples=20),
    _planted(withdrawn_with_its_state, examples=60, seed=1),
    _planted(given_back_by_anybody, examples=60),
)
