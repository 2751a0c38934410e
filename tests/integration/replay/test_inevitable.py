"""`levelog bisect --inevitable`: other orders of the records that the log did not order, decided again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.subjects import partition_of
from levelog_cli.loading import load_operators
from levelog_processors.program import Program
from levelog_replay.inorder import LogReplay
from levelog_replay.travel.expressions import Expression
from levelog_replay.travel.orders import Inevitable, Orders
from rigs.histories import Told
from rigs.lastnight import BAD, LastNight
from rigs.levelog import WEBS_FILE, Ended
from rigs.webs import PODS, WEBS, lists_done, logged, pod, receipt, web

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
