"""`levelog retry`, beside a process that runs and without one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
import yaml

from levelog_sandbox import Denial, Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.waiting import until

SHOP = "webs.example.com/default/shop"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A cluster in which nobody may make the pod that a Web asks for."""
    async with Sandbox(pods_run=True) as started:
        await define_webs(started)
        started.access.denials.append(Denial("patch", "pods"))
        shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
        shop["spec"]["replicas"] = 1
        started.user.create(shop)
        yield started


async def test_a_level_that_failed_is_tried_again_by_the_process_that_runs_or_by_the_next_one(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    async def failed_in(least: int) -> list[dict[str, Any]]:
        return [one for one in await levelog.levels() if one["status"] == "failed" and one["round"] >= least]

    async def is_told() -> bool:  # not while the level is in a round
        said = f"webs/pods of {SHOP} was failed, and is tried again\n"
        return await levelog.ends("retry", "default/shop") == (0, said, "")

    with levelog.start("run", WEBS_FILE) as running:
        (failed,) = await until(lambda: failed_in(1), "a level that failed", seconds=90, pause=0.25)
        assert [(write["target"], write["state"]) for write in failed["writes"]] == [("pods/default/shop-0", "failed")]
        assert "403 Forbidden" in failed["writes"][0]["error"]
        await until(is_told, "a failed level that is tried again", seconds=90)
        await until(lambda: failed_in(failed["round"] + 1), "another round in vain", seconds=90, pause=0.25)
        assert await running.stops() == 0
    sandbox.access.denials.clear()
    assert (await levelog.ends("retry", "--all-failed")).status == 0

    async def is_in_sync() -> bool:
        return [one["status"] for one in await levelog.levels()] == ["in_sync"]

    with levelog.start("run", WEBS_FILE) as running:
        await until(is_in_sync, "a level in sync after another round", seconds=90, pause=0.25)
        refused = await asyncio.gather(
            levelog.refused("retry", "shop", status=2),
            levelog.refused("retry", "--all-failed", status=2),
            levelog.refused("retry", "mall", status=2),
            levelog.refused("retry", status=2),
            levelog.refused("retry", "shop", "--all-failed", status=2),
            levelog.refused("retry", "shop", "--view", "pod", status=2),
        )
    assert list(refused) == [
        f"there is nothing to try again: webs/pods of {SHOP} is in_sync",
        "no level is failed",
        "no level of a parent 'mall': `levelog levels` shows all that there are",
        "say what to try again: names of parents, or --all-failed",
        "say what to try again: names of parents, or --all-failed, not both",
        "no level of a view 'pod': `levelog levels` shows all that there are",
    ]
