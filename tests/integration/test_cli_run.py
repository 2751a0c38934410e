"""`levelog run` and its parts as processes of their own, from a change in a cluster to the written objects."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from levelog_sandbox import Denial, Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, sandbox_of_shop
from rigs.ports import is_listening
from rigs.preloaded import PROGRAM
from rigs.waiting import until


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with sandbox_of_shop() as started:
        yield started


def pods(sandbox: Sandbox) -> list[str]:
    """Names of the pods that levelog has written, one for each effective write."""
    return sorted(request.name for request in sandbox.requests.writes(resource="pods", user_agent="levelog"))


async def test_run_converges_with_everything_embedded_and_stops_cleanly(sandbox: Sandbox, levelog: Levelog) -> None:
    with levelog.start("run", WEBS_FILE) as running:
        level = await levelog.in_sync()
        assert (level["application"], level["view"], level["parent"], level["round"]) == (
            *("webs", "webs/pods", "webs.example.com/default/shop"),
            1,
        )
        assert pods(sandbox) == ["shop-0", "shop-1", "shop-2"]
        nats = int((levelog.data / "nats.url").read_text().rpartition(":")[2])
        assert is_listening(nats)
        assert await running.stops() == 0
        assert not is_listening(nats)
    assert levelog.rows("SELECT count(*) FROM leases WHERE owner <> ''") == [(0,)]
    assert levelog.rows("SELECT DISTINCT state, is_relayed, is_folded FROM intents") == [("settled", 1, 1)]
    text = (await levelog.ends("levels", "shop", "--view", "pods", "--status", "in_sync")).stdout
    assert text.splitlines()[0].split() == ["VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON"]
    assert text.splitlines()[1].split() == ["webs/pods", "webs.example.com/default/shop", "in_sync", "1"]
    narrow = (await levelog.ends("levels", env={"COLUMNS": "60"})).stdout
    assert max(map(len, narrow.splitlines())) <= 60
    assert (await levelog.ends("levels", "--status", "failed")).stdout == "no level is failed\n"
    assert (await levelog.ends("levels", "shop", "--status", "failed")).stdout == "no level of shop is failed\n"
    sentence = await levelog.refused("levels", "shopp", status=2)
    assert sentence == "no level of a parent 'shopp': `levelog levels` shows all that there are"
    sentence = await levelog.refused("levels", "--view", "pod", status=2)
    assert sentence == "no level of a view 'pod': `levelog levels` shows all that there are"
    both = await levelog.ends("levels", "shop", "--view", "webs/pods", "--status", "failed", "--json")
    assert (both.status, both.stdout) == (0, "[]\n")
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    decided = [line for line in lines if line.get("view") == "webs/pods" and "sequence" in line]
    assert {line["object"] for line in decided} == {"webs.example.com/default/shop"}


READING = """
import sys
from pathlib import Path

from levelog import Level, Operator, Resource

op = Operator("webs")
hooks = []
add = sys.addaudithook
sys.addaudithook = lambda hook: hooks.append(hook) or add(hook)


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


@op.view
def reads(web: Web) -> Level[bool]:
    print("hooks:", len(hooks), flush=True)
    return Level(True, bool(Path(__file__).read_text()))
"""
REFUSED = "view webs/reads failed for webs.example.com/default/shop: open '"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], ["hooks: 0"]),
        (["run", "--check-purity"], ["hooks: 1", REFUSED]),
        (["dev", "--create", "web.yaml"], ["hooks: 1", REFUSED]),
    ],
    ids=["run", "flag", "dev"],
)
async def test_a_view_that_reads_a_file_is_refused_where_purity_is_checked_and_run_adds_no_hook_unless_asked(
    levelog: Levelog, arguments: list[str], said: list[str]
) -> None:
    (levelog.folder / "reading.py").write_text(READING)
    shop = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "shop", "namespace": "default"}}
    (levelog.folder / "web.yaml").write_text(yaml.safe_dump(shop))
    with levelog.start(*arguments, "reading.py") as running:
        for words in said:
            await running.says(words)
        if REFUSED not in said:
            await levelog.in_sync(rounds=0)


CLOSING = """
import sys

from levelog import Operator, Resource

op = Operator("webs")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


@op.on.create
async def close(web: Web) -> None:
    sys.stdout.close()
    sys.stderr.close()
"""


async def test_invariant_14_a_handler_that_closes_stdout_and_stderr_ends_nothing(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    (levelog.folder / "closing.py").write_text(CLOSING)
    with levelog.start("run", "closing.py") as running:
        await running.says("call handler close for default/shop: done")
        assert await running.stops() == 0


UNRECORDED = """
from datetime import timedelta
from pathlib import Path
from webs import Web, op

def tell(name: str) -> None:
    with Path("told").open("a") as file:
        print(name, file=file)

@op.timer(every=timedelta(seconds=1), recorded=False)
def probe(web: Web) -> None:
    tell("probe")

@op.on.event
def noted(web: Web) -> None:
    tell("noted")
"""


async def test_a_dry_run_says_what_would_be_written_and_calls_nothing_and_leaves_both_to_a_run(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    shutil.copy(WEBS_FILE, levelog.folder)
    (levelog.folder / "telling.py").write_text(UNRECORDED)
    told = levelog.folder / "told"
    with levelog.start("run", "telling.py", "--dry-run") as dry:
        await dry.says("dry run: nothing is written")
        for name in ("shop-0", "shop-1", "shop-2"):
            await dry.says(f"dry run: apply pods/default/{name} would be written: it is not there yet")
        due_at = datetime.now(UTC) + timedelta(seconds=2)
        await until(lambda: datetime.now(UTC) > due_at, "two calls of the timer are due")
        await dry.says("dry run: not called: webs/noted, webs/probe")
        assert {level["status"] for level in await levelog.levels()} == {"settling"}
        assert await dry.stops() == 0
    assert not told.exists()
    assert sandbox.user.list("pods") == []
    with levelog.start("run", "telling.py"):
        await until(
            lambda: told.exists() and set(told.read_text().split()) == {"noted", "probe"},
            "calls of the timer, and for the record",
        )
        await levelog.in_sync()
    assert told.read_text().split().count("noted") == 1
    assert pods(sandbox) == ["shop-0", "shop-1", "shop-2"]


async def test_new_record_handlers_begin_where_the_command_says(sandbox: Sandbox, levelog: Levelog) -> None:
    with levelog.start("run", WEBS_FILE) as before:
        await levelog.in_sync()
        assert await before.stops() == 0
    shutil.copy(WEBS_FILE, levelog.folder)
    (levelog.folder / "telling.py").write_text(UNRECORDED)
    told = levelog.folder / "told"
    for moment in ("yesterday", "0", "-15m"):
        sentence = await levelog.refused("run", "telling.py", f"--events-from={moment}", status=2)
        assert sentence.startswith(f"{moment!r} is no moment: write a sequence as in 812, a time as in ")
    sentence = await levelog.refused("run", "telling.py", "--events-from", "99999", status=2)
    assert re.fullmatch(r"--events-from 99999: the log ends at record \d+", sentence)
    with levelog.start("run", "telling.py", "--events-from", "1h"):
        await until(lambda: told.exists() and "noted" in told.read_text(), "the record from before")


async def test_a_processor_does_not_load_the_kubernetes_client() -> None:
    script = (
        "import sys, levelog_cli.main, levelog_cli.wiring.stack, levelog_cli.wiring.working\n"
        "print([name for name in ('kubernetes_asyncio', 'rich', 'prometheus_client') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"


async def test_only_the_given_namespace_is_watched(sandbox: Sandbox, levelog: Levelog) -> None:
    sandbox.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    web = yaml.safe_load((WEBS / "shop.yaml").read_text())
    web["metadata"] = {"name": "elsewhere", "namespace": "other"}
    sandbox.user.create(web)
    sandbox.access.denials += [Denial("list", "pods", namespace="", subresource="")]
    with levelog.start("run", WEBS_FILE, "--namespace", "other"):
        assert (await levelog.in_sync())["parent"] == "webs.example.com/other/elsewhere"
        assert pods(sandbox) == ["elsewhere-0", "elsewhere-1", "elsewhere-2"]


async def _written_for(sandbox: Sandbox, *webs: str) -> None:
    async def are_written() -> bool:
        return {name.rpartition("-")[0] for name in pods(sandbox)} == {*webs}

    await until(are_written, f"pods of {', '.join(webs)} and no others")


async def test_namespaces_that_match_a_pattern_are_watched_and_those_that_come_later(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    def add(name: str) -> None:
        sandbox.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        web = yaml.safe_load((WEBS / "shop.yaml").read_text())
        web["metadata"] = {"name": f"of-{name}", "namespace": name}
        sandbox.user.create(web)

    with levelog.start("run", WEBS_FILE, "--namespace", "team-*,!team-test") as running:
        await running.says("no namespace matches !team-test, team-*: waits for one")
        for name in ("team-a", "team-test", "other"):
            add(name)
        assert (await levelog.in_sync())["parent"] == "webs.example.com/team-a/of-team-a"
        add("team-b")
        await _written_for(sandbox, "of-team-a", "of-team-b")
        sandbox.user.delete("webs.example.com", "of-team-a", namespace="team-a")
        sandbox.user.delete("namespaces", "team-a", namespace="")
        add("team-c")
        await _written_for(sandbox, "of-team-a", "of-team-b", "of-team-c")
        assert await running.says("watches namespaces: team-a, team-b, team-c")


async def test_levels_say_which_source_fails_and_why(sandbox: Sandbox, levelog: Levelog, tmp_path: Path) -> None:
    sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}})
    (tmp_path / "number").write_text("112")
    (tmp_path / "pagers.py").write_text(
        "from datetime import timedelta\nfrom pathlib import Path\n"
        "from levelog import External, Level, Objects, Operator, Resource\n"
        "op = Operator('pages')\n"
        "class Map(Resource, version='v1', plural='configmaps', kind='ConfigMap'):\n    pass\n"
        "class Pager(External, plural='pagers'):\n    number: str\n"
        "@op.source(Pager, every=timedelta(seconds=1))\ndef pagers():\n"
        "    yield Pager(name='main', number=Path('number').read_text())\n"
        "@op.view(reads=[Pager])\ndef known(map: Map, objects: Objects) -> Level[bool]:\n"
        "    return Level(desired=True, actual=objects.get(Pager, 'main') is not None)\n"
    )

    async def failing() -> list[str]:
        running.check()
        shown = (await levelog.ends("levels")).stdout
        return shown.partition("out of date, so that the levels use")[2].splitlines()[1:]

    async def is_well() -> bool:
        shown = (await levelog.ends("levels")).stdout
        return "in_sync" in shown and "nothing is heard" not in shown

    with levelog.start("run", "pagers.py") as running:
        await until(is_well, "a level that reads a record", seconds=90, pause=0.25)
        (tmp_path / "number").unlink()
        lines = await until(failing, "the error of the source", seconds=90, pause=0.25)
        assert len(lines) == 1
        assert lines[0].startswith("pagers.external: ")
        assert "FileNotFoundError" in lines[0]
        [level] = await levelog.levels()
        assert level["status"] == "in_sync"
        assert datetime.fromisoformat(level["last_contact"]) <= datetime.now(UTC)
        (tmp_path / "number").write_text("112")
        await until(is_well, "a source that works again", seconds=90, pause=0.25)


async def test_on_a_terminal_the_first_lists_are_shown_and_log_lines_stay_whole(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    terminal, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "run", WEBS_FILE, cwd=levelog.folder, env={**levelog.env, "TERM": "xterm"}, stderr=slave
    )
    os.close(slave)
    seen = bytearray()
    asyncio.get_running_loop().add_reader(terminal, lambda: seen.extend(os.read(terminal, 65536)))
    try:
        await until(
            lambda: all(f"apply pods/default/shop-{n}: written".encode() in seen for n in range(3)),
            "log lines on the terminal",
        )
        assert b"webs.example.com" in seen
        assert "━".encode() in seen  # a bar
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        asyncio.get_running_loop().remove_reader(terminal)
        os.close(terminal)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_garbage_is_looked_for_seldom_and_not_in_what_a_start_leaves(sandbox: Sandbox, levelog: Levelog) -> None:
    counts = levelog.folder / "counts"
    (levelog.folder / "counted.py").write_text(
        "import gc\nfrom pathlib import Path\n"
        "from levelog import Level, Operator, Resource\n"
        "op = Operator('counted')\n"
        "class Web(Resource, group='example.com', version='v1', plural='webs'):\n    pass\n"
        "@op.view\ndef named(web: Web) -> Level[str]:\n    return Level(web.metadata.name, web.metadata.name)\n"
        "def count() -> None:\n"
        f"    with Path({str(counts)!r}).open('a') as file:\n"
        "        print(gc.get_freeze_count(), gc.get_threshold()[0], file=file)\n"
        "@op.on.startup\nasync def before() -> None:\n    count()\n"
        "@op.on.cleanup\nasync def after() -> None:\n    count()\n"
    )
    with levelog.start("run", "counted.py") as running:
        await levelog.in_sync(0)
        assert await running.stops() == 0
    before, after = (tuple(map(int, line.split())) for line in counts.read_text().splitlines())
    assert after[0] > before[0]
    assert after[1] > before[1]
