"""Promoting code: what is compared, and what a process that ends in the middle leaves to the next one."""

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, select

from levelog_store.connect.database import Database
from levelog_store.owners.handlers import Differences, Handler, differences
from levelog_store.owners.promotion import read_handlers
from levelog_store.tables import handlers, leases
from rigs.leasing import can_commit, processor, scope_of

INDEX = Handler(kind="index", name="webs/images", fingerprint="1", resource="pods")
VIEW = Handler(kind="view", name="webs/pods", fingerprint="1", resource="webs", reads=("webs/images",))
RECONCILE = Handler(kind="reconcile", name="webs/pods", fingerprint="1", resource="webs")
FINALIZING = Handler(kind="index", name="shop/@finalizing/webs", fingerprint="1", resource="webs")
FINALIZER_VIEW = Handler(kind="view", name="shop/webs_finalizer", fingerprint="1", resource="webs")
CODE = (INDEX, VIEW, RECONCILE)


def other(handler: Handler, **changed: str) -> Handler:
    return replace(handler, **{"fingerprint": "2"} | changed)


def test_a_changed_index_concerns_the_views_that_read_it() -> None:
    found = differences(CODE, (other(INDEX), VIEW, RECONCILE))
    assert found == Differences(
        emptied=frozenset(), indexed=(other(INDEX),), forgotten=frozenset(), evaluated=(VIEW,), decided=frozenset()
    )


def test_a_handler_of_another_resource_is_removed_and_made_anew() -> None:
    found = differences(CODE, (other(INDEX, resource="nodes"), other(VIEW, resource="shops"), RECONCILE))
    assert found.emptied | found.forgotten == {INDEX.name, VIEW.name}
    assert [each.name for each in (*found.indexed, *found.evaluated)] == [INDEX.name, VIEW.name]


def test_a_reconcile_function_that_is_changed_or_removed_concerns_its_view_alone() -> None:
    for code in ((INDEX, VIEW, other(RECONCILE)), (INDEX, VIEW)):
        found = differences(CODE, code)
        assert found.decided == {VIEW.name}
        assert (found.indexed, found.evaluated, found.emptied, found.forgotten) == ((), (), frozenset(), frozenset())


def test_the_same_code_differs_in_nothing() -> None:
    assert not differences(CODE, reversed(CODE))


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        ((), True),
        ((other(FINALIZER_VIEW, resource="pods"),), True),
        ((Handler(kind="view", name="pods/webs_finalizer", fingerprint="1", resource="webs"),), True),
        ((FINALIZER_VIEW,), False),
    ],
)
async def test_code_that_forgets_a_finalizer_is_told_what_to_do(
    database: Database, caplog: pytest.LogCaptureFixture, code: tuple[Handler, ...], is_told: bool
) -> None:
    await scope_of(database, code=(FINALIZING, FINALIZER_VIEW), fingerprint="before")
    await scope_of(database, code=(FINALIZER_VIEW,), fingerprint="between")
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    await scope_of(database, code=(FINALIZING, FINALIZER_VIEW), fingerprint="before")
    await scope_of(database, code=code, fingerprint="after")
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [message.partition(":")[0] for message in told] == (
        ["webs that the code before kept cannot be deleted"] if is_told else []
    )
    assert all("levelog/shop" in message for message in told)


async def test_invariant_10_a_promotion_that_ended_in_the_middle_is_finished_by_the_next_process(
    database: Database,
) -> None:
    """The fingerprint is promoted first, so that older code cannot commit; the handlers are compared afterwards."""
    scope = await scope_of(database, code=CODE)
    epochs = await processor(database, scope, "old").tend()
    async with database.transaction() as connection:  # as after the first of the two transactions
        await connection.execute(delete(handlers).where(handlers.c.kind == "view"))
    assert await can_commit(database, scope, epochs)
    await scope_of(database, code=CODE)
    assert not await can_commit(database, scope, epochs)
    async with database.reading() as connection:
        assert set(await read_handlers(connection, scope)) == set(CODE)
        assert set((await connection.execute(select(leases.c.owner))).scalars()) == {""}
