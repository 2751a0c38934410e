"""`levelog run --reload`: files change while an application runs."""

import json
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.levelog import WEBS_FILE, Levelog, Running, sandbox_of_shop
from rigs.nats import NatsServer
from rigs.ports import is_listening
from rigs.waiting import until

WANTED = "range(web.spec.replicas)"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with sandbox_of_shop() as started:
        yield started


def count(running: Running, text: str) -> int:
    """How many lines of the log begin so."""
    lines = running.log.read_text().splitlines()
    said = [json.loads(line)["message"] if line.startswith('{"time"') else line for line in lines]
    return len([line for line in said if line.startswith(text)])


async def is_started_again(running: Running) -> bool:
    return count(running, "levelog run: application webs") == 2


async def has_pods(sandbox: Sandbox, number: int) -> None:
    await until(lambda: len(sandbox.user.list("pods")) == number, f"{number} pods")


async def test_a_change_starts_the_application_anew_and_says_what_it_changes(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    file = levelog.folder / "webs.py"
    code = WEBS_FILE.read_text().replace(WANTED, "range(web.spec.replicas + MORE)")
    file.write_text(code.replace("import Iterator\n", "import Iterator\n\nfrom more import MORE\n"))
    (levelog.folder / "more.py").write_text("MORE = 0\n")
    with levelog.start("run", "webs.py", "--reload") as running:
        await levelog.in_sync()
        (levelog.folder / "more.py").write_text("MORE = 0  # a comment\n")
        await running.says("changed: more.py")
        await running.says("this changes no level and no write")
        await until(lambda: is_started_again(running), "the new code, which would read a file that is saved meanwhile")
        file.write_text(file.read_text().replace("+ MORE", "+ 1 + MORE"))
        await running.says("changed: webs.py")
        await running.says("webs/pods, 1 level: in_sync -> settling; apply pods (1)")
        await levelog.in_sync(2)
        assert len(sandbox.user.list("pods")) == 4
        (levelog.folder / "test_webs.py").write_text("'A test is no part of the application.'\n")
        file.write_text(file.read_text().replace("+ 1 + MORE", "+ 2 + MORE"))
        await has_pods(sandbox, 5)
        assert count(running, "changed: ") == 3
        assert "test_webs.py" not in running.log.read_text()
        assert await running.stops(signal.SIGINT) == 0


async def test_broken_code_is_told_once_and_the_code_before_it_runs_on_until_it_is_mended(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    file = levelog.folder / "webs.py"
    file.write_text(WEBS_FILE.read_text())
    with levelog.start("run", "webs.py", "--reload") as running:
        await levelog.in_sync()
        file.write_text(WEBS_FILE.read_text() + "x = (\n")
        await running.says("operator file webs.py has a syntax error in line")
        await running.says("the code before it runs on")
        sandbox.user.delete("pods", "shop-1")
        await levelog.in_sync(2)
        file.write_text(WEBS_FILE.read_text() + "import absent\n")
        await running.says("No module named 'absent'")
        (levelog.folder / "absent.py").write_text("")
        await running.says("changed: absent.py")
        sandbox.user.delete("pods", "shop-1")
        await levelog.in_sync(3)
        await until(lambda: count(running, "levelog run: application") == 2, "a second start")
        assert count(running, "levelog: operator file webs.py") == 2
        assert await running.stops() == 0


async def test_reloading_waits_for_code_that_runs_and_leaves_nothing_running_when_it_is_killed(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    file = levelog.folder / "webs.py"
    with levelog.start("run", "webs.py", "--reload") as running:
        await running.says("operator file webs.py does not exist")
        await running.says("waits for a change")
        hook = "\n\n@op.on.startup\nasync def begin() -> None:\n    raise RuntimeError('not today')\n"
        file.write_text(WEBS_FILE.read_text() + hook)
        await running.says("not today")
        await running.says("ended with status 1: is started again when a file changes")
        file.write_text(WEBS_FILE.read_text())
        await levelog.in_sync()
        assert count(running, "ended with status") == 1
        nats = int((levelog.data / "nats.url").read_text().rpartition(":")[2])
        os.kill(running.pid, signal.SIGKILL)
        await until(lambda: not is_listening(nats), "the end of the application and its servers")


@pytest.mark.long  # until its time is up
async def test_code_that_does_not_come_to_an_end_as_it_is_loaded_is_left_for_newer_code(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    file, marked = levelog.folder / "webs.py", levelog.folder / "loading"
    file.write_text(f"open({str(marked)!r}, 'w').close()\nwhile True: pass\n")
    with levelog.start("run", "webs.py", "--reload") as running:
        await until(marked.exists, "the file that is loaded")
        file.write_text("import os\nos._exit(5)\n")
        await running.says("waits for a change")
        file.write_text(WEBS_FILE.read_text())
        await levelog.in_sync()


async def test_processes_of_their_own_start_anew_together(
    sandbox: Sandbox, levelog: Levelog, nats_server: NatsServer, postgres_url: str
) -> None:
    levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
    assert (await levelog.ends("migrate")).status == 0
    file = levelog.folder / "webs.py"
    code = WEBS_FILE.read_text()
    file.write_text("def broken(:")
    processes = [levelog.start(part, "webs.py", "--reload") for part in ("ingest", "process", "actuate")]
    try:
        for process in processes:
            await process.says("waits for a change")
        file.write_text(code)
        await levelog.in_sync()
        file.write_text(code.replace(WANTED, "range(web.spec.replicas + 1)"))
        await has_pods(sandbox, 4)
        assert [count(process, "changed: webs.py") for process in processes] == [2, 2, 2]
        assert not any(count(process, "webs/pods, 1 level") for process in processes)
        for process in processes:
            assert await process.stops(signal.SIGTERM) == 0
    finally:
        for process in processes:
            process.kill()


async def test_a_process_that_lacks_a_server_is_refused_as_without_a_reload(levelog: Levelog) -> None:
    (levelog.folder / "webs.py").write_text(WEBS_FILE.read_text())
    assert "--nats-url" in await levelog.refused("process", "webs.py", "--reload", status=2)
