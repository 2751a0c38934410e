"""What an effect did is remembered in the log and in the tables: whichever is lost, nothing is done again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.billing import Company, Till, tenant
from rigs.nats import NatsServer

ON_SQLITE_OR_ON_BOTH = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)


@pytest_asyncio.fixture
async def company(nats_server: NatsServer, database_url: str, tmp_path: Path) -> AsyncIterator[Company]:
    async with Sandbox(bookmark_seconds=1) as sandbox:
        yield Company(sandbox, Till(), nats_server, database_url, tmp_path)


async def bill_three(company: Company) -> None:
    """`a` for two plans, `b` for one and another that nobody answers, `c` for one that is answered with an error."""
    user, till = company.sandbox.user, company.till
    till.refused |= {("c", "small")}
    till.unanswered |= {("b", "large")}
    for name in "abc":
        user.create(tenant(name, "small"))
    await company.shows(a="in_sync", b="in_sync")
    user.apply(tenant("a", "large"))
    await company.is_asked(("a", "large"))
    await company.shows(a="in_sync")
    user.apply(tenant("b", "large"))
    await company.shows(a="in_sync", b="settling", c="settling")
    await company.is_asked(*till.lost)
    await company.has_recorded()


ONCE = {("a", "small"): 1, ("a", "large"): 1, ("b", "small"): 1, ("b", "large"): 1, ("c", "small"): 1}


@ON_SQLITE_OR_ON_BOTH
async def test_invariant_13_losing_one_store_repeats_no_effect(company: Company) -> None:
    async with company.running():
        await bill_three(company)
    assert company.till.counts == ONCE
    done = {asked: len(keys) for asked, keys in company.till.keys.items() if asked not in company.till.lost}
    for loss in ("tables", "log", "tables"):
        await company.lose(loss)
        async with company.running():
            await company.shows(a="in_sync", b="settling", c="settling")
            await company.has_recorded()
    async with company.running():
        company.till.answer_all()
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    assert company.till.counts == ONCE
    assert {asked: len(company.till.keys[asked]) for asked in done} == done, "what was done was not even asked again"


async def test_with_both_stores_lost_what_is_wanted_is_done_again(company: Company) -> None:
    async with company.running():
        await bill_three(company)
    company.till.answer_all()
    before = {asked: len(keys) for asked, keys in company.till.keys.items()}
    await company.lose("log", "tables")
    async with company.running():
        await company.shows(a="in_sync", b="in_sync", c="in_sync")
    more = {asked: len(keys) - before[asked] for asked, keys in company.till.keys.items()}
    assert more == {("a", "small"): 0, ("a", "large"): 1, ("b", "small"): 0, ("b", "large"): 1, ("c", "small"): 1}


async def test_what_effects_did_is_recorded_again_before_the_log_forgets_it(company: Company) -> None:
    async with company.running():
        company.sandbox.user.create(tenant("a", "small"))
        await company.shows(a="in_sync")
        await company.has_recorded()
    await company.forget_records()
    async with company.running():
        await company.has_recorded()
    await company.lose("tables")
    async with company.running():
        await company.shows(a="in_sync")
    assert company.till.counts == {("a", "small"): 1}
