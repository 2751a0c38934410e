"""`levelog history`, on an application that runs and on one that has ended."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from levelog_sandbox import Sandbox
from rigs.levelog import WEBS_FILE, Levelog, Running, sandbox_of_shop
from rigs.waiting import until

SHOP = "webs.example.com/default/shop"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with sandbox_of_shop() as started:
        yield started


async def told(levelog: Levelog, *arguments: str) -> list[dict[str, Any]]:
    ended = await levelog.ends("history", *arguments, "--json")
    assert ended.status == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


async def test_the_history_of_objects_is_told_while_the_operator_runs_and_afterwards(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
    with levelog.start("run", WEBS_FILE) as running:
        await levelog.in_sync()
        sandbox.user.patch("webs.example.com", "shop", {"spec": {"replicas": 2}})

        async def is_gone() -> bool:
            return bool((await told(levelog, "pods/default/shop-2"))[-1]["happened"] == "deleted")

        await until(is_gone, "the deletion of shop-2 in its history")
        [found, changed] = await told(levelog, SHOP)
        assert found["happened"] == "found"
        assert changed["differences"] == [{"path": "spec.replicas", "before": 3, "after": 2}]
        assert await running.stops() == 0
    assert await told(levelog, SHOP) == [found, changed]
    for moment, replicas in ((found["sequence"], 3), (changed["sequence"] - 1, 3), (changed["sequence"], 2)):
        ended = await levelog.ends("history", SHOP, "--at", str(moment))
        assert yaml.safe_load(ended.stdout)["spec"]["replicas"] == replicas, ended.stderr
    entries = await told(levelog, "webs.example.com", "pods", "-l", "app=web", "--receipts")
    assert {entry["object"] for entry in entries if entry["type"] == "revision"} == {
        *(f"pods/default/shop-{number}" for number in range(3))
    }
    receipts = [entry for entry in entries if entry["type"] == "receipt"]
    assert [(entry["verb"], entry["parent"], entry["outcome"]) for entry in receipts] == [
        *[("apply", SHOP, "written")] * 3,
        ("delete", SHOP, "written"),
    ]
    assert entries == sorted(entries, key=lambda entry: entry["sequence"])
    since = changed["sequence"]
    assert [entry["sequence"] for entry in await told(levelog, SHOP, "--since", str(since - 1))] == [since]
    narrow = await levelog.ends("history", SHOP, "pods", "--receipts", env={"COLUMNS": "80"})
    assert max(map(len, narrow.stdout.splitlines())) <= 80


async def test_levels_are_watched_beside_an_operator_that_runs(sandbox: Sandbox, tmp_path: Path) -> None:
    levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
    running = levelog.start("run", WEBS_FILE)
    watching: list[Running] = []
    try:
        await levelog.in_sync()
        watching += [levelog.start("levels", "-w"), levelog.start("levels", "-w", "--json")]
        rows, lines = watching
        await rows.says(SHOP, "in_sync  1")
        await lines.says(SHOP, '"in_sync"', '"round":1')
        sandbox.user.patch("webs.example.com", "shop", {"spec": {"replicas": 2}})
        await rows.says(SHOP, "in_sync", " 2")
        await lines.says(SHOP, '"in_sync"', '"round":2')
        sandbox.user.delete("webs.example.com", "shop")
        await rows.says(SHOP, "gone")
        await lines.says(SHOP, '"gone"')
        assert [await each.stops(signal.SIGINT) for each in watching] == [0, 0]
        assert await running.stops() == 0
    finally:
        for each in (*watching, running):
            each.kill()
    assert "drop one of --watch and --at" in await levelog.refused("levels", "-w", "--at", "1", status=2)


async def test_writers_are_counted_from_the_log(ran: Levelog) -> None:
    ended = await ran.ends("writers", "pods", "default/shop", "--json")
    assert [(each["manager"], each["resource"], each["objects"]) for each in json.loads(ended.stdout)] == [
        (manager, "pods", 3) for manager in ("kubelet", "levelog-webs")
    ]
    assert "no field manager undoes what another one writes" in (await ran.ends("writers")).stdout
    assert "holds no record of services: recorded is what" in await ran.refused("writers", "services", status=2)
    assert "no write to webs.example.com" in await ran.refused("writers", "webs.example.com", status=2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["pods/default/none"],
            "holds no record of pods/default/none: no such object existed while the log was written",
        ),
        (["webs/default/shop"], "recorded is what the operators read: pods, webs.example.com (did you mean webs.exa"),
        (["web.example.com", "pod"], "(did you mean webs.example.com?)"),
        (["services/default/shop"], "recorded is what the operators read: pods, webs.example.com"),
        (["webs.example.com/none"], "one object is webs.example.com/NAMESPACE/NAME, with _ for no namespace"),
        (
            [SHOP, "--at", "9", "--follow"],
            "--at and --blame print one object: only --bundle and --json go with them",
        ),
        (["pods/default/a", "--at", "1"], "holds no record of pods/default/a"),
        ([SHOP, "--at", "99999"], "the log ends at sequence"),
        (["pods", "--blame", "spec"], "--blame prints one object"),
        ([SHOP, "--blame", "spec.replica"], f"{SHOP} has no field spec.replica: it has spec.replicas"),
        ([SHOP, "--at", "1"], "is not in the log at sequence 1: the first record of it is"),
        ([SHOP, "--at", "2000-01-01"], "is before the log begins: its first record is"),
        ([SHOP, "--at", "soon"], "'soon' is no moment"),
        (["pods", "--at", "1"], "--at prints one object"),
        (["/"], "names no objects"),
        (["pods", "-l", "a in (b)"], "cannot be read at"),
        (["pods", "--cluster", "other"], "holds no log of cluster other"),
    ],
)
async def test_what_cannot_be_told_is_one_sentence(ran: Levelog, arguments: list[str], sentence: str) -> None:
    assert sentence in await ran.refused("history", *arguments, status=2)


async def test_a_field_is_blamed_on_the_record_that_set_it(ran: Levelog) -> None:
    fields: Any = await told(ran, "pods/default/shop-0", "--blame", ".")
    by_name = {each["field"]: each for each in fields[0]}
    phase, image = by_name["status.phase"], by_name["spec.containers[web].image"]
    assert (phase["value"], phase["written"]["manager"]) == ("Running", "kubelet")
    assert image["written"]["manager"] == "levelog-webs"
    assert image["sequence"] < phase["sequence"], "what the kubelet left as it was keeps its record"
    shown = (await ran.ends("history", "pods/default/shop-0", "--blame", "spec.containers[web].image")).stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["RECORD", str(image["sequence"])]


async def test_without_a_log_it_is_said_where_one_is_looked_for(tmp_path: Path) -> None:
    assert await Levelog(tmp_path).refused("history", SHOP, status=2) == (
        "there is no log in .levelog: give --nats-url, or the --data-dir that `levelog run` used"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> Levelog:
    """A folder in which an operator ran, and came to its end."""
    folder = tmp_path_factory.mktemp("ran")
    async with sandbox_of_shop() as cluster:
        levelog = Levelog(folder, cluster.kubeconfig(folder / "kubeconfig"))
        with levelog.start("run", WEBS_FILE) as running:
            await levelog.in_sync()
            assert await running.stops() == 0
    return levelog
