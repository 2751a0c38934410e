"""`levelog why` and `history --decisions`, after a story: three pods, 3 → 2, an annotation, and the operator's end."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from levelog_store.tables import intents
from rigs.levelog import WEBS_FILE, Levelog, sandbox_of_shop
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import pod, receipt, web

SHOP = "webs.example.com/default/shop"
NARROW = {"COLUMNS": "80"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def story(tmp_path_factory: pytest.TempPathFactory) -> Levelog:
    """A folder in which an operator ran, and came to its end."""
    folder = tmp_path_factory.mktemp("story")
    async with sandbox_of_shop() as cluster:
        levelog = Levelog(folder, cluster.kubeconfig(folder / "kubeconfig"))
        with levelog.start("run", WEBS_FILE) as running:
            await levelog.in_sync()
            cluster.user.patch("webs.example.com", "shop", {"spec": {"replicas": 2}})
            await levelog.in_sync(rounds=2)
            cluster.user.patch("webs.example.com", "shop", {"metadata": {"annotations": {"note": "1"}}})

            async def is_folded() -> bool:
                return any(each["object"] == SHOP for each in await told(levelog, SHOP, "--suppressed"))

            await until(is_folded, "the last change in the log")
            assert await running.stops() == 0
    return levelog


async def told(levelog: Levelog, *arguments: str, command: str = "why") -> list[dict[str, Any]]:
    ended = await levelog.ends(command, *arguments, "--json")
    assert ended.status == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


async def test_each_decision_is_told_with_its_records_its_reads_and_its_writes(story: Levelog) -> None:
    every = await told(story, SHOP, "--all")
    first = every[0]
    assert [entry["happened"] for cause in first["causes"] for entry in cause["entries"]] == ["found"]
    assert (first["before"], first["after"]["drift"]) == (None, {"missing": ["shop-0", "shop-1", "shop-2"]})
    chain = await told(story, SHOP)
    assert chain == every[-len(chain) :]
    decision = chain[0]
    [cause] = decision["causes"]
    [revision] = cause["entries"]
    assert (revision["object"], revision["differences"]) == (
        SHOP,
        [{"path": "spec.replicas", "before": 3, "after": 2}],
    )
    assert (decision["before"]["status"], decision["after"]["status"]) == ("in_sync", "settling")
    assert decision["before"]["desired"].keys() - decision["after"]["desired"].keys() == {"shop-2"}
    [write] = decision["writes"]
    assert (write["verb"], write["target"], write["state"]) == ("delete", "pods/default/shop-2", "settled")
    assert write["receipt_sequence"] > cause["sequence"]
    history = await told(story, "pods/default/shop-2", command="history")
    assert write["shown_by"] in [entry["sequence"] for entry in history]
    read = next(read for each in chain[1:] for read in each["reads"])
    assert (read["index"], read["removed"], read["added"]) == ("webs/images", [["shop-2", "nginx:1.29"]], [])
    assert chain[-1]["after"]["status"] == "in_sync"
    shown = await told(story, SHOP, "pods", "--receipts", command="history")
    entries = [entry for each in chain for cause in each["causes"] for entry in cause["entries"]]
    entries += [entry for each in every for cause in each["causes"] for entry in cause["entries"]]
    assert {"revision", "receipt"} <= {entry["type"] for entry in entries}
    assert all(entry in shown for entry in entries), "told as `levelog history` tells them"


async def test_decisions_stand_on_the_timeline_between_what_they_saw_and_what_came_of_them(story: Levelog) -> None:
    entries = await told(story, "webs.example.com", "pods", "--receipts", "--decisions", command="history")
    decided = [(place, entry) for place, entry in enumerate(entries) if entry["type"] == "decision"]
    records = {entry["sequence"]: place for place, entry in enumerate(entries) if entry["type"] != "decision"}
    receipts = {entry["key"]: place for place, entry in enumerate(entries) if entry["type"] == "receipt"}
    assert [(each["round"], each["status"], each["causes"]) for _, each in decided] == [
        (each["round"], each["after"]["status"], [cause["sequence"] for cause in each["causes"]])
        for each in await told(story, SHOP, "--all")
    ]
    for place, each in decided:
        assert all(records[cause] < place for cause in each["causes"] if cause in records)
        assert all(place < receipts[write["key"]] for write in each["writes"])
        assert all((at < place) == (sequence <= each["after"]) for sequence, at in records.items())
    assert len(receipts) == 4
    since = decided[-1][1]["after"]
    rest = await told(story, SHOP, "--decisions", "--since", str(since), command="history")
    assert [each["type"] for each in rest] == ["decision", "revision"], "the annotation came last"


async def test_decisions_are_those_on_the_objects_shown_or_that_wrote_to_them(story: Levelog) -> None:
    async def writes(*arguments: str) -> list[list[str]]:
        entries = await told(story, *arguments, "--decisions", command="history")
        decided = [entry for entry in entries if entry["type"] == "decision"]
        return [[f"{each['verb']} {each['target']}" for each in entry["writes"]] for entry in decided]

    made = [f"apply pods/default/shop-{number}" for number in range(3)]
    gone = ["delete pods/default/shop-2"]
    assert await writes("pods/default/shop-2") == [made, gone]
    assert await writes("pods/default/shop-1") == [made]
    assert await writes("webs.example.com", "pods", "-l", "app=web") == [made, gone]
    ended = await story.ends("history", SHOP, "--decisions", env=NARROW)
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert "  webs/pods: in_sync -> settling, round 2\n" in ended.stdout
    assert "; delete pods/default/shop-2\n" in ended.stdout


async def test_history_says_where_it_looks_for_decisions(story: Levelog, tmp_path: Path) -> None:
    said = await story.refused("history", SHOP, "--decisions", "--follow", status=2)
    assert "drop one of --follow and --decisions" in said
    (tmp_path / ".levelog").mkdir()
    (tmp_path / ".levelog/nats").symlink_to(story.data / "nats")
    said = await Levelog(tmp_path).refused("history", SHOP, "--decisions", status=2)
    assert "decisions are in the database of the application, and there is none in .levelog: give" in said


async def test_an_object_may_be_named_as_for_kubectl_or_by_its_end(story: Levelog) -> None:
    chain = await told(story, "pods/default/shop-2")
    every = await told(story, "pods/default/shop-2", command="history")
    for name in ("Pod/shop-2", "shop-2"):
        assert await told(story, name) == chain != []
        assert await told(story, name, command="history") == every != []
    assert len(await told(story, "pods/default", command="history")) > len(every)
    shown = await story.ends("history", "default/shop-2", "--at", str(every[0]["sequence"]))
    assert yaml.safe_load(shown.stdout)["metadata"]["name"] == "shop-2", shown.stderr
    assert await told(story, "default/shop", "--all") == await told(story, SHOP, "--all")
    assert "nothing was decided on shopp or written to it" in await story.refused("why", "shopp", status=2)


async def test_what_was_deleted_leads_to_whose_doing_it_was(story: Levelog) -> None:
    [decision] = await told(story, "pods/default/shop-2")
    assert (decision["parent"], [write["verb"] for write in decision["writes"]]) == (SHOP, ["delete"])
    made, gone = await told(story, "pods/default/shop-2", "--all")
    assert gone == decision
    assert "pods/default/shop-2" in [write["target"] for write in made["writes"]]
    ended = await story.ends("why", "pods/default/shop-2", env=NARROW)
    assert ended.stdout.startswith(f"pods/default/shop-2 was deleted by webs/pods for {SHOP}\n")
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert "spec.replicas: 3 -> 2" in ended.stdout


async def test_in_brief_what_only_shows_how_writes_went_is_passed_over(story: Levelog) -> None:
    ended = await story.ends("why", SHOP, env={"COLUMNS": "120"})
    heading, _, day, *lines = ended.stdout.splitlines()
    assert (heading, day.split()[0]) == (f"webs/pods of {SHOP}: in_sync, round 2", "SEQUENCE")
    seen = [re.sub(r"[0-9:]{8}|(?<=in )[0-9]+|^ *[0-9]+", "#", line).strip() for line in lines]
    assert seen == [
        f"#  #  {SHOP} changed by user",
        "spec.replicas: 3 -> 2",
        "=>  #  webs/pods: in_sync -> settling, round 2",
        "extra shop-2",
        "delete pods/default/shop-2: done, seen in #",
        "=>  #  webs/pods: settling -> in_sync",
    ]
    full = await story.ends("why", SHOP, "--full", env=NARROW)
    assert max(map(len, full.stdout.splitlines())) <= 80
    assert "is its receipt: written" in full.stdout
    assert 'images[["example.com","Web","default","' in full.stdout


async def test_a_moment_chooses_what_held_then_or_what_came_since(story: Levelog) -> None:
    every = await told(story, SHOP, "--all")
    rested = next(each for each in every if each["after"]["status"] == "in_sync")
    then = await told(story, SHOP, "--at", str(rested["sequence"]))
    assert then == every[: every.index(rested) + 1]
    assert await told(story, SHOP, "--since", str(rested["sequence"])) == every[every.index(rested) + 1 :]


async def test_changes_that_led_to_nothing_are_told_with_the_reason(story: Levelog) -> None:
    ignored = await told(story, SHOP, "--suppressed")
    [noted] = [each for each in ignored if each["object"] == SHOP]
    assert (noted["why"], noted["happened"], noted["fields"]) == ("not_read", "changed", ["metadata.annotations"])
    rest = [each for each in ignored if each is not noted]  # pods run, in the same batch as they were made or after it
    assert {(each["object"].partition("/")[0], each["why"]) for each in rest} <= {("pods", "looked_at")}
    ended = await story.ends("why", SHOP, "--suppressed", env=NARROW)
    assert "ignored: the view reads nothing that changed" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["pods/default/none"],
            "nothing was decided on pods/default/none or written to it: `levelog levels` shows what is decided on, "
            "`levelog history pods/default/none` who changed it",
        ),
        (["pod/none"], "nothing was decided on pod/none or written to it: `levelog levels` shows what is decided on"),
        (
            [SHOP, "--view", "other"],
            "no view 'other' decided on",
        ),
        (
            [SHOP, "--at", "1"],
            "decided nothing on webs.example.com/default/shop by sequence 1: the first such decision",
        ),
        ([SHOP, "--at", "99999"], "the log ends at sequence"),
        (["pods/default/shop-2", "--at", "3"], "webs/pods did not write pods/default/shop-2 by sequence 3: the first"),
        (["webs/default/shop"], "recorded is what the operators read: pods, webs.example.com (did you mean webs.exa"),
        (["pods"], "nothing was decided on pods or written to it"),
        ([SHOP, "--all", "--since", "1h"], "say one of --since, --at and --all"),
    ],
)
async def test_what_cannot_be_told_is_one_sentence(story: Levelog, arguments: list[str], sentence: str) -> None:
    assert sentence in await story.refused("why", *arguments, status=2)


async def test_the_levels_of_each_moment_are_shown(story: Levelog) -> None:
    async def levels_at(moment: int, *more: str) -> list[dict[str, Any]]:
        ended = await story.ends("levels", *more, "--at", str(moment), "--json")
        assert ended.status == 0, ended.stderr
        found: list[dict[str, Any]] = json.loads(ended.stdout)
        return found

    every = await told(story, SHOP, "--all")
    newest = {each["sequence"]: each for each in every}
    for sequence, decision in [next(iter(newest.items())), list(newest.items())[-1]]:
        [level] = await levels_at(sequence, "shop")
        assert {name: level[name] for name in decision["after"]} == decision["after"]
    assert await levels_at(1) == []  # the Web had not been seen yet
    shown = await story.ends("levels", "--at", str(every[0]["sequence"]), env=NARROW)
    assert (shown.status, shown.stdout.split()[:4]) == (0, ["VIEW", "PARENT", "STATUS", "ROUND"]), shown
    for wrong, why in [("999999", "the log ends at sequence"), ("soon", "is no moment")]:
        refused = await story.ends("levels", "--at", wrong)
        assert (refused.status, why in refused.stderr) == (2, True)
    refused = await story.ends("levels", "nobody", "--at", str(every[0]["sequence"]))
    assert (refused.status, "no level of nobody at sequence" in refused.stderr) == (2, True)


async def test_why_on_postgresql_is_as_on_sqlite(nats_server: NatsServer, postgres_url: str, tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
    async with Processing(nats_server.url, postgres_url) as stack:
        last = await stack.listed(web("shop", 1, replicas=1), version=1)
        stack.start()
        await stack.start_more("two")
        await stack.folded(last)
        await stack.claim()
        [row] = await stack.rows(intents)
        receipted = await stack.tell(receipt(row, version=5))
        shown = await stack.tell(pod("shop-0", 5, owner="uid-shop"))
        await stack.folded(shown)
    [made, *_, settled] = await told(levelog, SHOP, "--all")
    [write] = made["writes"]
    assert (write["target"], write["state"], write["shown_by"]) == ("pods/default/shop-0", "settled", shown)
    assert write["receipt_sequence"] == receipted
    assert (settled["after"]["status"], settled["after"]["actual"]) == ("in_sync", {"shop-0": "a"})
    [decision, *_] = await told(levelog, "pods/default/shop-0")
    assert decision == made
    entries = await told(levelog, "webs.example.com", "--decisions", command="history")
    assert [entry["status"] for entry in entries if entry["type"] == "decision"][-1] == "in_sync"


async def test_levels_of_one_parent_stand_apart_and_one_that_rests_says_so(tmp_path: Path) -> None:
    operator = """
from levelog import Level, Operator, Resource, Struct

op = Operator("webs")

class Spec(Struct):
    replicas: int = 0

class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec

@op.view
def first(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=web.spec.replicas)

@op.view
def second(web: Web) -> Level[int]:
    return Level(desired=0, actual=web.spec.replicas)
"""
    (tmp_path / "webs.py").write_text(operator)
    async with sandbox_of_shop() as cluster:
        levelog = Levelog(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
        with levelog.start("run", tmp_path / "webs.py") as running:
            for replicas in (3, 2):
                cluster.user.patch("webs.example.com", "shop", {"spec": {"replicas": replicas}})

                async def is_seen(replicas: int = replicas) -> bool:
                    ended = await levelog.ends("why", SHOP, "--view", "first", "--all", "--json")
                    decided = [json.loads(line)["after"]["desired"] for line in ended.stdout.splitlines()]
                    return decided[-1:] == [replicas]

                await until(is_seen, f"{replicas} replicas")
            assert await running.stops() == 0
    said = (await levelog.ends("why", SHOP)).stdout
    first, second = said.split("\n\nwebs/second of ")
    assert first.endswith("in_sync\n\nits newest decision changed and wrote nothing; --all shows those before")
    assert "drifting" in second
