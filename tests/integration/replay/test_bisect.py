"""`levelog bisect`: the first record after which something is so, and whether it would be in other orders, too."""

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.subjects import partition_of
from levelog_cli.loading import load_operators
from levelog_history.timeline import DecisionEntry
from levelog_processors.program import Program
from levelog_replay.bundles.reading import Bundle, open_bundle
from levelog_replay.inorder import LogReplay
from levelog_replay.travel.bisecting import Bisection
from levelog_replay.travel.expressions import Expression
from levelog_replay.travel.orders import Inevitable, Orders
from rigs.histories import Told, told
from rigs.lastnight import BAD, ORDERS, SHOP, LastNight
from rigs.levelog import WEBS_FILE, Ended
from rigs.webs import PODS, WEBS, lists_done, logged, pod, receipt, web


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


PARTITIONS = 16
PROGRAM = Program(load_operators([WEBS_FILE]))
NAME = next(
    name
    for name in map("shop{}".format, range(99))
    if len({partition_of(each.key, PARTITIONS) for each in (web(name, 1), pod(f"{name}-1", 1))}) == 2
)
"""A Web that is in another partition than its second pod."""
OWN = {"owner": f"uid-{NAME}"}
SECOND = f"pods/default/{NAME}-1"


def history(*records: Any) -> Told:
    """Records after lists of a Web that wants one pod, which it has."""
    marks = [lists_done(resource, 1) for resource in (WEBS, PODS)]
    found: list[tuple[Any, int]] = [(begun, n) for begun, _ in marks for n in range(PARTITIONS)]
    found += [(web(NAME, 2, replicas=1), 0), (pod(f"{NAME}-0", 3, **OWN), 0)]
    found += [(ended, n) for _, ended in marks for n in range(PARTITIONS)]
    of_web = partition_of(web(NAME, 1).key, PARTITIONS)
    found += [(each, of_web) for each in records]
    told: Sequence[Any] = [
        one
        for number, (record, partition) in enumerate(found, start=1)
        for one in logged([record], first=number, partitions=PARTITIONS, partition=partition)
    ]
    history = Told(told)
    history.origin = replace(history.origin, partitions=PARTITIONS)
    return history


async def tried(told: Told, expression: str, *, most: int = 99) -> Inevitable:
    replay = partial(LogReplay, redactor=Redactor())
    found = await Orders(told, Expression(expression), PROGRAM, replay, most).run()
    assert found is not None
    return found


async def test_a_pod_and_the_web_that_wants_it_race() -> None:
    told = history(web(NAME, 4, replicas=1, labels={"a": "b"}), pod(f"{NAME}-1", 5, **OWN), web(NAME, 6, replicas=2))
    found = await tried(told, f'wrote("delete", "{SECOND}")')
    assert (found.symptom, found.since, found.race) == (told.last - 1, told.last - 1, (told.last - 1, told.last))
    assert not found.is_bounded


async def test_what_came_of_a_write_does_not_come_before_what_the_write_was_decided_on() -> None:
    scaled = web(NAME, 4, replicas=2)
    first = LogReplay(history(scaled), PROGRAM, redactor=Redactor())
    async for _ in first.run():
        pass
    await first.close()
    [key] = first.keys
    row = {"key": key, "view": "webs/pods", "parent": str(scaled.key), "parent_uid": scaled.uid, "round": 1}
    answer = receipt({**row, "verb": "apply", "target": SECOND, "attempts": 1, "owner": ""}, version=5)
    told = history(scaled, pod(f"{NAME}-1", 5, **OWN), answer)
    found = await tried(told, f'wrote("apply", "{SECOND}")')
    assert found.race is None, "the pod is there because it was written"
    made = history(scaled, pod(f"{NAME}-1", 6, **OWN), answer)
    assert (await tried(made, f'wrote("apply", "{SECOND}")')).race == (told.last - 2, told.last - 1), "by somebody else"


async def test_it_is_said_if_not_all_orders_were_tried() -> None:
    told = history(*(web(f"other{n}", 4 + n) for n in range(6)), pod(f"{NAME}-1", 20, **OWN))
    found = await tried(told, f'wrote("delete", "{SECOND}")', most=2)
    assert (found.is_bounded, found.orders, found.race) == (True, 2, None)


async def test_the_command_says_from_which_record_on(night: LastNight) -> None:
    async def ends(expression: str) -> Ended:
        return await night.levelog.ends("bisect", BAD, "--inevitable", expression, "--bundle", night.bundle)

    ended = await ends('wrote("delete", "pods/default/migrate-orders")')
    assert ended.status == 0, ended
    assert ended.stdout.startswith(f"it comes out after record {night.stranger}\nfrom record 9 on it comes out in")
    never = await ends('wrote("delete", "pods/default/none")')
    assert (never.status, "does not come out in the order of the log" in never.stdout) == (1, True)
