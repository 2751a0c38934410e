"""`levelog replay`: what is told of a bug, and what is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from rigs.levelog import WEBS_FILE
from rigs.nats import NatsServer
from rigs.recorded import Recorded, record_webs

GREEDY = WEBS_FILE.read_text().replace(
    "range(web.spec.replicas)", "range(web.spec.replicas if web.spec.replicas < 4 else 2)"
)


@pytest_asyncio.fixture
async def recorded(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Recorded]:
    async with record_webs(nats_server.url, tmp_path) as found:
        yield found


async def test_a_planted_bug_is_told_from_the_good_code_at_the_record_that_shows_it(
    recorded: Recorded, tmp_path: Path
) -> None:
    bad = tmp_path / "greedy.py"
    bad.write_text(GREEDY)
    both = await recorded.levelog.ends("replay", WEBS_FILE, "--against", bad, "--json", env=recorded.env)
    assert both.status == 1, both.stderr
    found = json.loads(both.stdout)
    assert found["views"]["webs/pods"] | {"of_other_code": 0} == {
        "same": 4,
        "changed": 1,
        "only_before": 0,
        "only_after": 0,
        "skipped": 0,
        "of_other_code": 0,
    }
    first = found["first"]
    assert (first["cause"], first["parent"]) == (recorded.scaled, "webs.example.com/default/shop")
    assert [len(first[side]["desired"]) for side in ("before", "after")] == [4, 2]
    assert [[each["target"] for each in first[side]["intents"]] for side in ("before", "after")] == [
        ["pods/default/shop-2", "pods/default/shop-3"],
        [],
    ]
    in_order = await recorded.levelog.ends(
        "replay", WEBS_FILE, "--against", bad, "--mode", "log", "--json", env=recorded.env
    )
    assert in_order.status == 1, in_order.stderr
    assert json.loads(in_order.stdout)["first"]["cause"] == recorded.scaled
    shown = await recorded.levelog.ends("replay", bad, env={**recorded.env, "COLUMNS": "80"})
    assert shown.status == 1
    assert f"because of record {recorded.scaled}" in shown.stdout
    assert '- shop-3: "a"' in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80, shown.stdout
    good = await recorded.levelog.ends("replay", bad, "--to", str(recorded.scaled - 1), env=recorded.env)
    assert good.status == 0, good.stdout


REFUSED = {
    ("--from", "900"): "the log ends at sequence",
    ("--from", "9", "--to", "3"): "--from sequence 9 is after --to sequence 3",
    ("--from", "soon"): "is no moment",
    ("--object", "webs.example.com/default/none"): "no decision of application webs was recorded on",
    ("--object", "a/b/c/d"): "names no objects",
    ("--resource", "pods"): "no decision of application webs was recorded on pods",
    ("--handler", "podz"): "no view, index or reconcile function 'podz'",
    ("--mode", "log"): "give --against FILE",
    ("--against", "nothing.py"): "nothing.py does not exist",
}


async def test_what_there_is_nothing_of_is_refused_in_one_sentence(recorded: Recorded) -> None:
    for arguments, words in REFUSED.items():
        assert words in await recorded.levelog.refused("replay", WEBS_FILE, *arguments, status=2, env=recorded.env)
