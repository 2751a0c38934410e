"""What of a Kopf file lasts over the end of its process, what begins anew with the next one, and what several share."""

from pathlib import Path

import pytest

from levelog_sandbox import Sandbox
from rigs.faults import Stage, Strike
from rigs.kopfrivals import DEFINITION, SHOPS, Handlers, rival
from rigs.levelog import Levelog, define
from rigs.nats import NatsServer
from rigs.waiting import until


async def test_a_retry_is_counted_over_a_restart(tmp_path: Path) -> None:
    source = """
@kopf.on.create(*SHOPS)
def tries(retry, started, **_):
    tell("tries", retry, started.isoformat())
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=3)
"""
    async with rival("levelog", tmp_path, source) as one:
        one.make("a")
        first = await one.tells("tries", 0)
        await one.stop()
        one.start()
        assert (await one.tells("tries", 1))[2] == first[2]
        assert len(one.told("tries")) == 2


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("request", b'"status"'),
        ("answer", b'"labels"'),
        pytest.param("request", b'"labels"', marks=pytest.mark.long),
        pytest.param("answer", b'"status"', marks=pytest.mark.long),
    ],
)
async def test_a_process_that_is_killed_at_its_patch_leaves_it_to_the_next_one_which_calls_no_function(
    tmp_path: Path, stage: Stage, part: bytes
) -> None:
    source = """
import time

@kopf.on.create(*SHOPS)
def patches(patch, **_):
    tell("patches")
    patch.metadata.labels["at"] = str(time.time_ns())
    return time.time_ns()
"""
    async with rival("levelog", tmp_path, source) as one:
        strike = one.proxy.add(
            Strike(call=one.kill, stage=stage, is_last=True),
            lambda request: request.verb == "patch" and part in request.body,
        )
        one.make("a")
        await until(lambda: bool(strike.applied) and not one.is_running, "the end of the process")
        one.start()

        async def is_written() -> bool:
            found = one.sandbox.user.get(SHOPS, "a")
            return "patches" in found.get("status", {}) and "at" in found["metadata"].get("labels", {})

        await until(is_written, "both parts of the patch")
        await one.is_calm()
        assert one.told("patches") == [["patches"]]
        assert [each.subresource for each in one.writes()] == ["status", ""]


@pytest.mark.long
async def test_timers_keep_their_schedule_and_their_end_over_a_restart_and_memos_begin_anew(tmp_path: Path) -> None:
    source = """
@kopf.timer(*SHOPS, interval=3600)
def hourly(**_):
    tell("hourly")


@kopf.timer(*SHOPS, interval=1)
def ends(**_):
    tell("ends")
    raise kopf.PermanentError("no use")


@kopf.timer(*SHOPS, interval=1)
def beats(retry, **_):
    tell("beats")


@kopf.on.update(*SHOPS)
def counts(memo, spec, **_):
    memo.count = memo.get("count", 0) + 1
    tell("counts", spec["size"], memo.count)
"""
    async with rival("levelog", tmp_path, source) as one:
        one.make("a", size=1)
        for told in ("hourly", "ends", "beats", "made"):
            await one.tells(told)
        one.change("a", size=2)
        await one.tells("counts", 2, 1)
        one.change("a", size=3)
        await one.tells("counts", 3, 2)
        await one.stop()
        before = len(one.told("beats"))
        one.start()
        await until(lambda: len(one.told("beats")) >= before + 3, "three more calls of a timer")
        assert (len(one.told("hourly")), len(one.told("ends"))) == (1, 1)
        one.change("a", size=4)
        await one.tells("counts", 4, 1)  # the memo of the process before is gone


@pytest.mark.parametrize("edge", ["create", "delete"])
async def test_a_handler_whose_process_is_killed_is_called_again(tmp_path: Path, edge: str) -> None:
    let_go = tmp_path / "let-go"
    source = f"""
@kopf.on.{edge}(*SHOPS)
async def handles(**_):
    tell("begins")
    while not Path({str(let_go)!r}).exists():
        await asyncio.sleep(0.05)
    tell("ends")
"""
    async with rival("levelog", tmp_path, source) as one:
        one.make("a")
        if edge == "delete":
            await one.tells("made", "a")
            one.delete("a")
        await one.tells("begins")
        one.kill()
        assert not one.told("ends")
        assert ("finalizers" in one.sandbox.user.get(SHOPS, "a")["metadata"]) == (edge == "delete")
        let_go.touch()
        one.start()
        await one.tells("ends")
        assert len(one.told("begins")) == 2
        await one.is_calm()
        assert len(one.told("ends")) == 1
        assert bool(one.sandbox.user.list(SHOPS)) == (edge == "create")


async def test_several_processes_share_the_objects_of_a_file_and_each_has_its_start_up_and_its_memos(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    source = """
import os


@kopf.on.startup()
def begin(memo, **_):
    memo.process = os.getpid()
    tell("begins", os.getpid())


@kopf.on.create(*SHOPS)
async def creates(name, memo, **_):
    await asyncio.sleep(0.1)
    tell("creates", os.getpid(), memo.process, name)


@kopf.on.event(*SHOPS)
def sees(name, memo, **_):
    tell("sees", os.getpid(), memo.process, name)
"""
    async with Sandbox() as sandbox:
        await define(sandbox, DEFINITION)
        kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
        levelog = Levelog(tmp_path, kubeconfig)
        levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
        handlers = Handlers("levelog", tmp_path, kubeconfig, source)
        roles = ("process", "process", "actuate", "actuate", "ingest")
        running = [(role, levelog.start(role, "shops.py")) for role in roles]
        try:
            pids = {role: {process.pid for each, process in running if each == role} for role in roles}
            begun = pids["process"] | pids["actuate"]  # those that handle or decide
            await until(
                lambda: {pid for _, pid in handlers.told("begins")} == begun, "start-up handlers of four processes"
            )
            names: list[str] = []

            async def have_all_a_share() -> bool:
                metadata = {"name": f"shop-{len(names)}", "namespace": "default"}
                sandbox.user.create({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": {}})
                names.append(metadata["name"])
                return {each[1] for what in ("creates", "sees") for each in handlers.told(what)} == begun

            await until(have_all_a_share, "objects for each of the processes")
            await until(
                lambda: all({each[3] for each in handlers.told(what)} == set(names) for what in ("creates", "sees")),
                "all objects handled and seen",
            )
            assert {each[1] for each in handlers.told("creates")} == pids["actuate"]
            assert {each[1] for each in handlers.told("sees")} == pids["process"]
            assert sorted(each[3] for each in handlers.told("creates")) == sorted(names)  # each once
            assert all(pid == memo for what in ("creates", "sees") for _, pid, memo, _ in handlers.told(what))
        finally:
            for _, process in running:
                process.kill()
