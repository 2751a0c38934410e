"""`levelog replay`: what is told of a bug, and what is refused."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from levelog_cli.loading import load_operators
from rigs.levelog import WEBS_FILE, Levelog
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.recorded import GREEDY, Recorded
from rigs.webs import pod, web

LASTNIGHT = WEBS_FILE.parents[1] / "lastnight"
GUARDRAILS = WEBS_FILE.parents[1] / "guardrails" / "guardrails.py"


async def test_invariant_12_a_planted_bug_is_told_from_the_good_code_at_the_record_that_shows_it(
    recorded: Recorded, tmp_path: Path
) -> None:
    bad = tmp_path / "greedy.py"
    bad.write_text(GREEDY)
    before = dumped(recorded)
    both = await recorded.levelog.ends("replay", WEBS_FILE, "--against", bad, "--json", env=recorded.env)
    assert both.status == 1, both.stderr
    found = json.loads(both.stdout)
    assert found["views"]["webs/pods"] == {
        "same": 4,
        "changed": 1,
        "only_before": 0,
        "only_after": 0,
        "refused": 0,
        "skipped": 0,
    }
    first = found["first"]
    assert (first["cause"], first["parent"]) == (recorded.scaled, "webs.example.com/default/shop")
    assert [len(first[side]["desired"]) for side in ("before", "after")] == [4, 2]
    assert [[each["target"] for each in first[side]["intents"]] for side in ("before", "after")] == [
        ["pods/default/shop-2", "pods/default/shop-3"],
        [],
    ]
    in_order = await recorded.levelog.ends("what-if", WEBS_FILE, "--code", bad, "--json", env=recorded.env)
    assert (in_order.status, in_order.stderr) == (1, ""), "what is decided again is not told as if it happened"
    assert json.loads(in_order.stdout)["differing"][0]["cause"] == recorded.scaled
    shown = await recorded.levelog.ends("replay", bad, env={**recorded.env, "COLUMNS": "80"})
    assert shown.status == 1
    assert f"because of record {recorded.scaled}" in shown.stdout
    assert '- shop-3: "a"' in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80, shown.stdout
    good = await recorded.levelog.ends("replay", bad, "--to", str(recorded.scaled - 1), env=recorded.env)
    assert good.status == 0, good.stdout
    assert dumped(recorded) == before, "invariant 12: a replay writes nothing"


def dumped(recorded: Recorded) -> list[str]:
    with closing(sqlite3.connect(recorded.levelog.folder / "levelog.db")) as database:
        return list(database.iterdump())


async def test_what_differs_in_the_content_of_a_write_is_told(recorded: Recorded, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(WEBS_FILE.read_text().replace('"labels": {"app": "web"}', '"labels": {"app": "web", "tier": "x"}'))
    ended = await recorded.levelog.ends("replay", other, env={**recorded.env, "COLUMNS": "120"})
    assert ended.status == 1, ended.stderr
    assert '  content   pods/default/other-0: + metadata.labels.tier: "x"\n' in ended.stdout, ended.stdout


async def test_what_was_deleted_by_a_shared_label_is_told_from_the_fixed_code_at_the_pod_that_bears_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    bad, fixed = LASTNIGHT / "webs.py", LASTNIGHT / "fixed.py"
    url = f"sqlite:///{tmp_path}/levelog.db"
    labels = {"app": "shop"}
    async with Processing(nats_server.url, url, load_operators([bad])) as stack:
        own = [pod(f"shop-{n}", 2 + n, owner="uid-shop", labels=labels) for n in range(2)]
        stack.start()
        await stack.folded(await stack.listed(web("shop", 1, replicas=2), *own, version=5))
        stranger = await stack.tell(pod("migrate-orders", 6, image="shop-migrations:42", labels=labels))
        await stack.folded(stranger)
        assert await stack.intents() == [("delete", "pods/default/migrate-orders")]
        await stack.folded(await stack.tell(web("shop", 7, replicas=2, image="b")))
    env = {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
    for arguments in (("replay", bad, "--against", fixed), ("what-if", bad, "--code", fixed)):
        ended = await Levelog(tmp_path).ends(*arguments, "--json", env=env, seconds=120)
        assert ended.status == 1, ended.stderr
        told = json.loads(ended.stdout)
        first = told["first"] if "first" in told else told["differing"][0]
        assert (first["cause"], first["parent"]) == (stranger, "webs.example.com/default/shop")
        writes = [(each["verb"], each["target"]) for each in first["before"]["intents"]]
        assert writes == [("delete", "pods/default/migrate-orders")]
        # in the order of the log the fixed code is not even woken by a pod that is not its own
        assert (first["after"] or {"intents": []})["intents"] == []


REFUSED = {
    ("--from", "900"): "the log ends at sequence",
    ("--from", "9", "--to", "3"): "--from sequence 9 is after --to sequence 3",
    ("--from", "soon"): "is no moment",
    ("--object", "webs.example.com/default/none"): "no decision of application webs was recorded on",
    ("--object", "a/b/c/d"): "names no objects",
    ("--object", "pods"): "was recorded on pods: it decides on objects of webs.example.com",
    ("--handler", "podz"): "no view, index or reconcile function 'podz'",
    ("--against", "nothing.py"): "nothing.py does not exist",
    ("--against", str(GUARDRAILS)): "has none of the views of",
}


async def test_what_there_is_nothing_of_is_refused_in_one_sentence(recorded: Recorded) -> None:
    for arguments, words in REFUSED.items():
        assert words in await recorded.levelog.refused("replay", WEBS_FILE, *arguments, status=2, env=recorded.env)
