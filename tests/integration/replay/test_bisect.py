"""`levelog bisect`: the first record after which something is so."""

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from levelog_history.timeline import DecisionEntry
from levelog_replay.bundles.reading import Bundle, open_bundle
from levelog_replay.travel.bisecting import Bisection
from levelog_replay.travel.expressions import Expression
from rigs.histories import Told, told
from rigs.lastnight import ORDERS, SHOP, LastNight


async def found(night: LastNight, expression: str) -> tuple[int | None, list[tuple[str, int]]]:
    """The record, and what led to it; the same on the bundle and the log."""
    answers: list[tuple[int | None, list[tuple[str, int]]]] = []
    for options, env in night.sources:
        ended = await night.levelog.ends("bisect", "--bad", expression, "--json", *options, env=env)
        answer = json.loads(ended.stdout)
        assert ended.status == (1 if answer["record"] is None else 0), ended
        answers.append((answer["record"], [(each["type"], each["sequence"]) for each in answer["led_to"]]))
    assert answers[0] == answers[1]
    return answers[0]


async def test_a_deletion_is_traced_to_the_decision_and_the_record_that_woke_it(night: LastNight) -> None:
    record, led_to = await found(night, f'deleted("{ORDERS}")')
    assert record == night.gone
    assert led_to == [("revision", night.stranger), ("decision", night.stranger), ("revision", night.gone)]


async def test_what_was_decided_counts_after_the_last_record_that_the_decision_saw(night: LastNight) -> None:
    for expression in (f'wrote("delete", "{ORDERS}")', 'level("shop").status == "settling"'):
        assert (await found(night, expression))[0] == night.stranger


async def test_a_field_of_an_object(night: LastNight) -> None:
    assert await found(night, f'object("{SHOP}").spec.image == "b"') == (night.scaled, [("revision", night.scaled)])
    assert await found(night, f'object("{SHOP}").spec.nothing.at.all < 3') == (None, [])


async def test_what_held_from_the_beginning_counts_once_it_holds_again(night: LastNight) -> None:
    assert (await found(night, 'len(objects("pods/default")) < 3'))[0] == night.gone


async def test_a_condition_that_holds_for_one_record_is_found() -> None:
    records = told([("seen", "shop", 1, "a", count) for count in (1, 2, 1, 1)])
    history = Told(records)
    answer = await Bisection(history, Expression(f'object("{SHOP}").spec.replicas == 2')).run([])
    assert answer is not None
    assert answer.sequence == 2
    assert history.ended == history.reads, "whoever stops early ends what it read"


async def test_the_decisions_of_each_application_count(night: LastNight) -> None:
    def bundle() -> Bundle:
        return open_bundle(night.bundle)

    async def nothing() -> AsyncIterator[DecisionEntry]:
        none: Sequence[DecisionEntry] = ()
        for entry in none:
            yield entry

    condition = Expression(f'wrote("delete", "{ORDERS}")')
    for decisions in ([nothing(), bundle().entries(bool)], [bundle().entries(bool), nothing()]):
        answer = await Bisection(bundle(), condition).run(decisions)
        assert answer is not None
        assert answer.sequence == int(night.stranger)


async def test_a_database_without_the_cluster_of_the_log_is_said(night: LastNight, tmp_path: Path) -> None:
    for file in night.bundle.parent.glob("levelog.db*"):
        shutil.copy(file, tmp_path)
    with sqlite3.connect(tmp_path / "levelog.db") as database:
        database.execute("update scopes set cluster = 'another'")
    env = {**night.env, "LEVELOG_DATABASE_URL": f"sqlite:///{tmp_path}/levelog.db"}
    for command in (["bisect", "--bad", "len(objects('pods')) > 99"], ["levels", "--at", "10"], ["why", "shop"]):
        refused = await night.levelog.refused(*command, status=2, env=env)
        assert "holds no such application; it holds: webs on another" in refused


REFUSED = {
    ("--bad", "nothing(1)"): "there is no nothing, but deleted, level, levels, object, objects, wrote",
    ("--bad", "1 +"): "is no Python expression",
    ("--bad", "1 / 0"): "fails after record 0: ZeroDivisionError",
    ("--bad", 'deleted("shop")'): "names no object",
    (): "give one of --bad EXPRESSION and --inevitable EXPRESSION",
    ("--bad", "1", "--inevitable", "1"): "give one of --bad",
    ("--inevitable", "1"): "name the operators",
}


async def test_what_cannot_be_looked_for_is_refused_in_one_sentence(night: LastNight) -> None:
    for arguments, words in REFUSED.items():
        refused = await night.levelog.refused("bisect", "--bundle", night.bundle, *arguments, status=2)
        assert words in refused
