"""Mode `log`: one history gives the decisions that are made live, however it is read, with any hash seed."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from levelog.operator import Operator
from levelog.wire.objects import Application, Cluster, ObjectKey, Uid
from levelog.wire.records import LoggedRecord, ReceiptNoted
from levelog_cli.loading import load_operators
from levelog_processors.program import Program
from levelog_replay.sources import Origin
from rigs.inorder import decided_in_order
from rigs.processing import WEBS_FILE
from rigs.webs import NOON, PODS, WEBS, deleted, lists_done, logged, pod, web

PARTITIONS = 4


def history() -> list[LoggedRecord]:
    """Webs whose pods come and go, with times that pass, lists, and a receipt that no decision here asked for."""
    marks = [lists_done(resource, 1) for resource in (WEBS, PODS)]
    found: list[tuple[Any, int]] = [(begun, n) for begun, _ in marks for n in range(PARTITIONS)]
    found += [(web(name, 1, replicas=3), 0) for name in ("shop", "blog", "wiki")]
    found += [(ended, n) for _, ended in marks for n in range(PARTITIONS)]
    pods = {n: pod(f"shop-{n}", 10 + n, owner="uid-shop") for n in range(3)}
    found += [(each, 0) for each in pods.values()]
    found += [(web("shop", 20, replicas=2), 0), (web("shop", 21, replicas=3), 0), (deleted(pods[1], 22), 0)]
    found += [(pod(f"blog-{n}", 30 + n, owner="uid-blog"), 0) for n in range(4)]
    found += [(web("blog", 40, replicas=1, image="b"), 0), (deleted(web("wiki", 1), 41), 0)]
    records: list[LoggedRecord] = []
    for number, (record, partition) in enumerate(found):
        at = replace(record, time=NOON + timedelta(seconds=number))
        records += logged([at], first=number + 1, partitions=PARTITIONS, partition=partition)
    key = ObjectKey(group="example.com", resource="webs", namespace="default", name="blog")
    receipt = ReceiptNoted(
        application="webs",
        key="of-an-older-round",
        view="webs/pods",
        parent=key,
        parent_uid=Uid("uid-blog"),
        round=7,
        verb="apply",
        target=ObjectKey(group="", resource="pods", namespace="default", name="blog-0"),
        outcome="written",
        target_uid="uid-blog-0",
        target_version=30,
        error="",
        time=NOON + timedelta(minutes=10),
    )
    partition = next(r.partition for r in records if getattr(r.record, "key", None) == key)
    last = len(records) + 1
    records += logged([receipt], first=last, partitions=PARTITIONS, partition=partition)
    late = replace(web("blog", 50, replicas=2), time=NOON + timedelta(minutes=20))
    return records + logged([late], first=last + 1, partitions=PARTITIONS)


class Listed:
    """A history in batches of some size."""

    def __init__(self, size: int) -> None:
        self._records = history()
        self._size = size
        self.first = 1
        self.last = len(self._records)
        self.origin = Origin(cluster=Cluster("cluster"), application=Application("webs"), partitions=PARTITIONS)

    async def records(self, start: int = 0) -> AsyncGenerator[list[LoggedRecord]]:
        wanted = [logged for logged in self._records if logged.sequence >= start]
        for at in range(0, len(wanted), self._size):
            yield wanted[at : at + self._size]


async def decided(operators: list[Operator], *, size: int = 1000, url: str = "") -> bytes:
    """Every decision, as JSON."""
    return await decided_in_order(Program(operators), Listed(size), url)


async def test_invariant_12_in_mode_log_decisions_are_those_of_both_databases_and_the_same_for_any_read_size(
    empty_postgres_url: str, tmp_path: Path
) -> None:
    operators = load_operators([WEBS_FILE])
    expected = await decided(operators)
    outcomes = [(d["parent"].split("/")[-1], d["status"], d["round"]) for d in msgspec.json.decode(expected)]
    assert ("shop", "settling", 1) in outcomes
    assert ("blog", "settling", 8) in outcomes, "a receipt raises the round, and so do decisions after it"
    assert len(outcomes) > 8
    for size in (1, 7):
        assert await decided(operators, size=size) == expected
    for url in (empty_postgres_url, f"sqlite:///{tmp_path / 'levelog.db'}"):
        assert await decided(operators, url=url) == expected


@pytest.mark.long
async def test_invariant_12_in_mode_log_decisions_are_the_same_with_any_hash_seed() -> None:
    found: set[bytes] = set()
    for seed in ("1", "77"):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        found.add(out)
    [one] = found
    assert len(msgspec.json.decode(one)) > 8


if __name__ == "__main__":
    sys.stdout.buffer.write(asyncio.run(decided(load_operators([WEBS_FILE]))))
