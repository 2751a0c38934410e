"""Timers without records in a process that is killed within a call, and started again."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from levelog_sandbox import Sandbox
from rigs.levelog import Levelog, define_webs
from rigs.nats import NatsServer
from rigs.waiting import until

SECOND = timedelta(seconds=1)
SOURCE = """
import json
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

from levelog import Operator, Resource

op = Operator("ticks")
TOLD = Path(__file__).with_name("told.jsonl")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


def tell(timer: str, web: Web, started: datetime, key: str) -> None:
    with TOLD.open("a") as file:
        file.write(json.dumps([timer, web.metadata.name, started.isoformat(), key, os.getpid()]) + "\\n")


@op.timer(every=timedelta(seconds=1), recorded=False)
async def often(web: Web, started: datetime, idempotency_key: str) -> None:
    tell("often", web, started, idempotency_key)


@op.timer(every=timedelta(hours=1), recorded=False)
async def seldom(web: Web, started: datetime, idempotency_key: str) -> None:
    tell("seldom", web, started, idempotency_key)
    killing = TOLD.with_name("killing")
    if web.metadata.name == "deadly" and killing.exists():
        killing.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Told(NamedTuple):
    """A call: what was called for which object, when that was due, its key, and the process that made it."""

    timer: str
    name: str
    due: datetime
    key: str
    pid: int


def calls(folder: Path) -> list[Told]:
    file = folder / "told.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [Told(timer, name, datetime.fromisoformat(due), key, pid) for timer, name, due, key, pid in found]


@pytest.mark.long
@pytest.mark.parametrize("is_embedded", [True, False], ids=["sqlite", "postgresql"])
async def test_a_killed_process_goes_on_at_the_multiples_and_repeats_its_last_round_with_the_same_keys(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path, is_embedded: bool
) -> None:
    (tmp_path / "ticks.py").write_text(SOURCE)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        if not is_embedded:
            levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
        created: dict[str, datetime] = {}

        def make(name: str) -> None:
            body = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name, "namespace": "default"}}
            made = sandbox.user.create(body | {"spec": {"image": "nginx"}})
            created[name] = datetime.fromisoformat(made["metadata"]["creationTimestamp"])

        async def has_called(is_wanted: Callable[[Told], bool], names: set[str], times: int = 1) -> bool:
            if running.is_running:
                found = Counter(each.name for each in calls(tmp_path) if is_wanted(each))
                return all(found[name] >= times for name in names)
            raise AssertionError(running.log_tail())

        running = levelog.start("run", "ticks.py")
        try:
            await running.says("application ticks")
            make("first")
            await until(partial(has_called, lambda each: each.timer == "often", {"first"}), "the timers", seconds=60)
            del created["first"]  # it may have been there before the timers
            early = {"one", "two"}
            for name in sorted(early):
                make(name)
            since = max(created.values())
            later = partial(lambda since, each: each.timer == "often" and each.due > since + SECOND, since)
            await until(partial(has_called, later, early, 2), "rounds after the first one", seconds=60)
            (tmp_path / "killing").touch()
            make("deadly")  # which is often seen after the time of its first call has been stored
            assert await running.ends() == -9
            killed = running.pid
            running = levelog.start("run", "ticks.py")
            again = partial(has_called, lambda each: each.timer == "often" and each.pid != killed)
            await until(partial(again, {*early, "deadly"}, 3), "calls by the next process", seconds=90)
        finally:
            running.kill()
    found = [each for each in calls(tmp_path) if each.name in created]
    assert all((each.due - created[each.name]) % SECOND == timedelta(0) for each in found)
    assert {each[1:3] for each in found if each.timer == "seldom"} == {*created.items()}
    assert len({each.key for each in found}) == len({(each.timer, each.name, each.due) for each in found})
    times = Counter((each.timer, each.name, each.due, each.key) for each in found)
    twice = {call for call, count in times.items() if count > 1}
    killed_in = "seldom", "deadly", created["deadly"]
    assert killed_in in {call[:3] for call in twice}
    assert max(times.values()) == 2
    assert min(due for _, _, due, _ in twice) > killed_in[2] - SECOND  # those of its round only
    by_process = Counter((each.timer, each.name, each.due, each.pid) for each in found)
    assert max(by_process.values()) == 1
