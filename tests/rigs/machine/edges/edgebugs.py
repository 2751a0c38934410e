"""Bugs to plant into what edge handlers are made of, as `bugs` has them of levels."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import Dialect, Select, Update, bindparam, false, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from levelog.edges import Diff
from levelog.handlers.edgehandlers import END, EdgeHandler
from levelog_base.wire.objects import ObjectKey
from levelog_processors.bound import BoundView
from levelog_processors.decide import facts, writetargets
from levelog_processors.fold.foldrules import Fold
from levelog_processors.fold.receipts import Receipts
from levelog_store.actuate import outcomes
from levelog_store.actuate.claims import CLAIMED, IS_KEY, is_one_of_keys
from levelog_store.actuate.outcomes import ClaimReceipt
from levelog_store.dialects import Timestamp
from levelog_store.rows import Scope, StoredObject
from levelog_store.tables import intents
from rigs.machine.bugs import Bug, late_records_count, replaces
from rigs.machine.laboratory import Laboratory
from rigs.machine.planting import Planted


@replaces("_called", writetargets)
def ends_in_a_line_of_their_own(
    real: Any, view: BoundView, parent: StoredObject, intent: Any, handler: Any
) -> ObjectKey:
    """The call for the end of an object has another target than those for its changes."""
    found: ObjectKey = real(view, parent, intent, handler)
    if intent.options.name != END:
        return found
    return ObjectKey(group=found.group, resource=found.resource, namespace=found.namespace, name=f"{found.name}:{END}")


def called_before_it_is_known(laboratory: Laboratory[Any]) -> Generator[None]:
    """The call that notes that an object is known is in no order with the one that handles it."""
    effects = laboratory.program.effects.values()
    kept = [(effect, effect.in_line) for effect in effects]
    try:
        for effect in effects:
            effect.in_line = (END,)
        yield
    finally:
        for effect, in_line in kept:
            effect.in_line = in_line


@replaces("withdraw_unwanted", outcomes)
def tried_although_it_is_gone(_: Dialect) -> ReturningUpdate[Any]:
    """A call that is given back after its object went stays to be made again."""
    return update(intents).where(false()).values(state="superseded").returning(intents.c.key)


@contextmanager
def under_any_claim() -> Generator[None]:
    """Store receipts as those of the claims that there are."""
    real = outcomes.store_receipts

    async def store(
        connection: AsyncConnection, scope: Scope, owner: str, receipts: Sequence[ClaimReceipt], **beside: Any
    ) -> dict[str, bool]:
        query = select(intents.c.key, intents.c.claim).where(intents.c.scope == scope.number)
        under = dict((await connection.execute(query)).all())
        return await real(connection, scope, owner, [(each, under[each.key]) for each, _ in receipts], **beside)

    with patch.object(outcomes, "store_receipts", store):
        yield


def outcomes_of_lost_claims_count(_: Laboratory[Any]) -> Generator[None]:
    """What came of a call is stored although another actuator has claimed its intent."""

    def lock_claimed(dialect: Dialect) -> Select[str, int, bool]:
        found = select(intents.c.key, intents.c.claim, false())
        return found.where(is_one_of_keys(dialect), intents.c.state == CLAIMED)

    with patch.object(outcomes, "lock_claimed", lock_claimed), under_any_claim():
        yield


@replaces("give_back", outcomes)
def given_back_by_anybody() -> Update:
    """A call is given back although another actuator has claimed its intent."""
    values = {
        "state": bindparam("to_state"),
        "owner": "",
        "due_at": bindparam("at", type_=Timestamp()),
        "expires_at": bindparam("ended", type_=Timestamp()),
        "attempts": bindparam("made"),
        "error": bindparam("because"),
    }
    return update(intents).where(IS_KEY, intents.c.state == CLAIMED, bindparam("by") == bindparam("by")).values(values)


@replaces("_keep_deleted", Fold)
def ends_are_forgotten(*_: Any) -> None:
    """Of an object that is deleted nothing is kept."""


@replaces("remember", Receipts)
def handled_is_not_remembered(_: Any) -> None:
    """Receipts of calls end their intents, and what was handled is not kept."""


@replaces("_is_behind", Receipts)
def old_receipts_count(*_: Any) -> Any:
    """A receipt that comes a second time, after newer ones, says what was handled last."""
    return False


@replaces("is_settled", facts)
def decided_while_it_is_called(_: Any) -> Any:
    """A level with a call under way decides on the next one."""
    return True


@replaces("diff", EdgeHandler)
def differences_are_not_told(self: EdgeHandler, level: Any) -> Diff:
    """What differs from what was handled is not part of the edge, so that old is new."""
    return ()


def _planted(bug: Bug, *invariants: int, examples: int, seed: int = 0) -> Planted:
    return Planted(bug, invariants, examples, seed, machine="edges")


EDGE_BUGS: Final[Sequence[Planted]] = (
    _planted(ends_are_forgotten, 15, examples=20, seed=1),
    _planted(called_before_it_is_known, 15, examples=60, seed=1),
    _planted(handled_is_not_remembered, 16, 15, examples=20),
    _planted(old_receipts_count, 16, 15, examples=240),
    _planted(differences_are_not_told, 16, examples=20),
    _planted(tried_although_it_is_gone, 16, examples=60),
    _planted(decided_while_it_is_called, 16, 17, 15, examples=40, seed=1),
    _planted(ends_in_a_line_of_their_own, 17, examples=40),
    _planted(outcomes_of_lost_claims_count, 17, examples=40, seed=3),
    _planted(given_back_by_anybody, 17, examples=0),
    _planted(late_records_count, 17, 16, 15, examples=60, seed=1),
)
