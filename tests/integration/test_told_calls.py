"""How people are told of calls: by function and kind, with one line of the log each; of daemons, that they run."""

import json
import re
from pathlib import Path

from levelog_sandbox import Sandbox
from rigs.kopfrivals import DEFINITION
from rigs.levelog import Levelog, define
from rigs.waiting import until

SOURCE = """
import asyncio
from datetime import timedelta

from levelog import Operator, Resource

op = Operator("shops")


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    pass


@op.on.create
async def greet(shop: Shop) -> None:
    pass


@op.on.delete
async def mourn(shop: Shop) -> None:
    pass


@op.timer(every=timedelta(hours=1))
async def count(shop: Shop) -> None:
    pass


@op.timer(every=timedelta(hours=1), idle=timedelta(minutes=30))
async def rest(shop: Shop) -> None:
    pass


@op.daemon
async def follow(shop: Shop) -> None:
    await asyncio.sleep(3600)
"""

FAILING = """
from datetime import timedelta

from levelog import Operator, Resource

op = Operator("shops")


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    pass


@op.on.create(backoff=timedelta(hours=1))
async def greet(shop: Shop) -> None:
    raise ValueError("no voice")


@op.on.event(backoff=timedelta(hours=1))
def note(shop: Shop) -> None:
    raise ValueError("no paper")


@op.daemon(backoff=timedelta(hours=1))
async def follow(shop: Shop) -> None:
    raise ValueError("no legs")
"""


async def with_a_shop(sandbox: Sandbox, folder: Path, source: str) -> Levelog:
    """The command in a folder with `shops.py`, on a cluster with the Shop `a`."""
    levelog = Levelog(folder, sandbox.kubeconfig(folder / "kubeconfig"))
    (levelog.folder / "shops.py").write_text(source)
    await define(sandbox, DEFINITION)
    metadata = {"name": "a", "namespace": "default"}
    sandbox.user.create({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata})
    return levelog


async def test_calls_are_told_of_by_the_name_and_kind_of_their_function_and_daemons_say_that_they_run(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    levelog = await with_a_shop(sandbox, tmp_path, SOURCE)
    with levelog.start("run", "shops.py") as running:
        await running.says("call handler greet for default/a: done")
        await running.says("call timer count for default/a: done")
        await running.says("daemon follow runs for shops.example.com/default/a")

        async def are_settled() -> bool:
            said = (await levelog.ends("levels", env={"COLUMNS": "300"})).stdout
            return len(re.findall(r"in_sync", said)) == 4 and "daemon follow runs since 20" in said

        await until(are_settled, "what came of the calls in levels")
        lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
        told = [line["message"] for line in lines if "shops.example.com/default/a" in str(line)]
        assert sorted(told) == [
            "call handler greet for default/a: done",
            "call timer count for default/a: done",
            "daemon follow runs for shops.example.com/default/a",
        ]
        why = await levelog.ends("why", "shops/a", env={"COLUMNS": "300"})
        for noted in ("handler mourn for default/a", "timer rest for default/a:changed"):
            assert f"call {noted}: noted, the function is not called" in why.stdout
        assert "call handler greet for default/a: done" in why.stdout
        why = await levelog.ends("why", "shops/a", "--full", env={"COLUMNS": "300"})
        assert "call handler greet for default/a: settled" in why.stdout
        assert len(re.findall("is its receipt: noted, the function is not called", why.stdout)) == 2
        assert len(re.findall("is its receipt: written", why.stdout)) == 2
        assert re.search(r"call daemon follow for default/a: runs since .* UTC, on .* in process \d+ ", why.stdout)
        everything = why.stdout + running.log.read_text()
        assert not re.search(r"(greet_handled|count_calls|follow_runs)\b", everything), everything
        await running.stops()
        levels = await levelog.ends("levels", "--view", "follow", env={"COLUMNS": "300"})
        over = "daemon follow has run since .* UTC, and waits for an actuator to take it over: the process ends"
        assert re.search(over, levels.stdout), levels.stdout


async def test_calls_that_fail_are_told_of_with_their_attempts_the_next_one_and_the_error(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    levelog = await with_a_shop(sandbox, tmp_path, FAILING)
    tried = r"tried once since \S+ \S+ UTC, the next time at \S+ \S+ UTC"

    async def said(*command: str) -> str:
        ended = await levelog.ends(*command, env={"COLUMNS": "300"})
        return " ".join((ended.stdout + ended.stderr).split())

    with levelog.start("run", "shops.py"):

        async def are_tried() -> bool:
            return len(re.findall(tried, await said("levels"))) == 3

        await until(are_tried, "three calls that have failed once")
        levels = await said("levels")
        assert re.search(f"call handler greet for default/a: {tried}: ValueError: no voice", levels), levels
        assert re.search(f"daemon follow {tried}: ValueError: no legs", levels), levels
        assert re.search(rf"event handler note: ValueError: no paper \(record \d+\); {tried}", levels), levels
        why = await said("why", "shops/a")
        assert re.search(f"call handler greet for default/a: pending: {tried}: ValueError: no voice", why), why
        assert re.search(f"call daemon follow for default/a: {tried}: ValueError: no legs", why), why
        why = await said("why", "shops/a", "--view", "note")
        assert re.search(f"calls of shops/note leave no decisions; the last one is failed: .*; {tried}", why), why
        assert "no view 'nobody' decided on shops/a" in await said("why", "shops/a", "--view", "nobody")
