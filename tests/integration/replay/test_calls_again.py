"""`levelog replay --call`: handlers, timers and effects, called again with what they were called with then."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from levelog_base.wire.objects import Cluster, GroupResource
from levelog_base.wire.records import ObjectSeen
from levelog_cli.loading import load_operators
from levelog_kube.client import connect as connect_kube
from levelog_replay.comparing import Tally
from levelog_sandbox import Sandbox
from levelog_store.tables import levels
from rigs.levelog import Ended, Levelog, define_webs
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import NOON, WEBS, web

CONFIG_MAPS = GroupResource(group="", resource="configmaps")
OPERATOR = '''
from collections.abc import Iterator
from datetime import datetime, timedelta

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Resource, Struct, apply, call
from levelog.edges import Diff

op = Operator("webs")


class WebSpec(Struct):
    image: str
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Note(Struct):
    text: str


@op.on.create
@op.on.update
async def greet(web: Web, old: Web | None, diff: Diff, reason: str, retry: int, idempotency_key: str) -> None:
    """Fails at first for the one; gives up on large ones."""
    if retry == 0 and reason == "create" and web.metadata.name == "shop":
        raise ConnectionError("no mail server")
    if web.spec.replicas > 5:
        raise GiveUp("too many")


@op.on.create(writes={ConfigMap: ["apply"]})
def file(web: Web, reason: str) -> Iterator[Intent]:
    data = {"reason": reason, "replicas": str(web.spec.replicas)}
    yield apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"file-{web.metadata.name}"}, "data": data}
    )


@op.on.update
def compare(web: Web, old: Web | None) -> None:
    """New objects are only noted."""
    assert old is not None


@op.timer(every=timedelta(days=365))
def rotate(web: Web, retry: int, started: datetime) -> None:
    assert web.spec.image == "a"


@op.effect
def notify(request: Note) -> int:
    return len(request.text)


@op.view
def told(web: Web, notify: Index[str, Call[Note, int]]) -> Level[str | None]:
    made = [each.request.text for each in notify[web.metadata.uid]]
    return Level(f"{web.metadata.name} {web.spec.replicas}", made[0] if made else None)


@op.reconcile(told)
def tell(web: Web, level: Level[str | None]) -> Iterator[Intent]:
    yield call(notify, Note(level.desired or ""))
'''
UNRECORDED = """

@op.timer(every=timedelta(seconds=1), recorded=False)
def probe(web: Web) -> None:
    os.write(2, b"it is called")
"""
DAEMON = """

@op.daemon
async def guard(web: Web) -> None:
    pass
"""
GREET = '    if retry == 0 and reason == "create"'
ALL = ("--call", "compare", "--call", "greet", "--call", "webs/file", "--call", "rotate", "--call", "notify")
CALLS = {"webs/compare": 2, "webs/greet": 4, "webs/file": 2, "webs/rotate": 2, "webs/notify": 4}
SHOP = "webs.example.com/default/shop"
CALLED = {f"webs/{name}" for name in ("greet", "compare", "file", "rotate", "told")}


class Again:
    """An application that has called, and the command that calls again."""

    def __init__(self, levelog: Levelog, env: dict[str, str], updated: int) -> None:
        self.levelog = levelog
        self.env = {**env, "COLUMNS": "100"}
        self.file = levelog.folder / "calls.py"
        self.updated = updated
        """Sequence of the record that asks for three replicas."""

    def changed(self, name: str, before: str, after: str) -> Path:
        """The operator with something changed."""
        assert before in OPERATOR
        path = self.levelog.folder / name
        path.write_text(OPERATOR.replace(before, after))
        return path

    async def replays(self, *arguments: str | Path, typed: str = "") -> Ended:
        ended = await self.levelog.ends("replay", *arguments, env=self.env, typed=typed)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    async def told(self, *arguments: str | Path, status: int) -> dict[str, Any]:
        """What `--json` says of the calls."""
        ended = await self.replays(*arguments, "--json")
        assert ended.status == status, ended
        found: dict[str, Any] = json.loads(ended.stdout)
        assert found["is_same"] == (status == 0)
        calls: dict[str, Any] = found["calls"]
        return calls


def shown(name: str, version: int, replicas: int) -> ObjectSeen:
    return web(name, version, replicas=replicas, creationTimestamp=NOON.isoformat())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def again(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Again]:
    """For all tests of the file, which only read it."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "calls.py").write_text(OPERATOR)
    url = f"sqlite:///{folder}/levelog.db"
    async with NatsServer() as nats, Sandbox() as sandbox:
        await define_webs(sandbox)
        cluster = Cluster(sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
        operators = load_operators([folder / "calls.py"])
        async with (
            await connect_kube(sandbox.kubeconfig(folder / "kubeconfig")) as client,
            Processing(nats.url, url, operators, cluster=cluster) as stack,
        ):
            stack.start()
            stack.actuate(client)
            records = shown("shop", 1, 2), shown("other", 2, 1)
            await has_called(stack, await stack.listed(*records, version=2, of=(WEBS, CONFIG_MAPS)))
            updated = await stack.tell(shown("shop", 3, 3))
            await has_called(stack, updated)
            await has_called(stack, await stack.tell(shown("shop", 4, 9)))
        env = {"LEVELOG_NATS_URL": nats.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
        yield Again(Levelog(folder), env, updated)


async def has_called(stack: Processing, sequence: int) -> None:
    """Wait until all is called that a record asks for, and the receipts are folded."""
    await stack.folded(sequence)

    async def is_done() -> bool:
        found = [row["status"] for row in await stack.rows(levels) if row["view"] in CALLED]
        return len(found) == 2 * len(CALLED) and set(found) <= {"in_sync", "failed"}

    await until(is_done, "all called")


def counted(same: int, **others: int) -> dict[str, int]:
    return dict.fromkeys(Tally.__struct_fields__, 0) | {"same": same} | others


async def test_the_same_code_comes_to_the_same_for_each_kind_and_the_last_attempt_is_made_again(again: Again) -> None:
    calls = await again.told(again.file, *ALL, status=0)
    assert calls["functions"] == {name: counted(made) for name, made in CALLS.items()}
    assert (calls["first"], calls["refusals"], calls["obstacles"]) == (None, {}, {})
    ended = await again.replays(again.file, "--call", "greet", "--object", SHOP)
    assert ended.status == 0
    assert "CALL        SAME  CHANGED  ONLY THEN  ONLY NOW  REFUSED  SKIPPED" in ended.stdout
    assert "\nwebs/greet  3     0        0          0         0        0" in ended.stdout
    assert json.loads((await again.replays(again.file, "--json")).stdout)["calls"] is None, "nothing is called unasked"


async def test_what_raises_now_is_told_with_what_it_was_called_with(again: Again) -> None:
    file = again.changed("raising.py", GREET, "    if web.spec.replicas == 3:\n        {}['x']\n" + GREET)
    ended = await again.replays(file, "--call", "greet")
    assert ended.status == 1
    told = ended.stdout.partition("VIEW")[0]
    assert f"the first call that differs: handler webs/greet for {SHOP}\n" in told
    assert f"because of record {again.updated}\n" in told
    assert "  attempt   1\n" in told
    assert '  reason    "update"\n' in told
    assert "  diff      /spec/replicas: 2 -> 3\n" in told
    assert "  came to   then  returned nothing\n" in told
    assert "  came to   now   raised KeyError: 'x'\n" in told
    assert "\nwebs/greet  3     1        0" in ended.stdout
    calls = await again.told(file, "--call", "greet", status=1)
    assert calls["functions"] == {"webs/greet": counted(3, changed=1)}
    first = calls["first"]
    assert (first["function"], first["parent"], first["cause"]) == ("webs/greet", SHOP, again.updated)
    assert first["request"]["object"]["spec"] == {"image": "a", "replicas": 3}
    assert first["before"] == {"result": None, "error": ""}
    assert first["after"] == {"result": None, "error": "handler greet: KeyError: 'x'"}


async def test_other_words_of_an_error_are_a_difference(again: Again) -> None:
    file = again.changed("words.py", "too many", "too much")
    calls = await again.told(file, "--call", "greet", status=1)
    assert calls["functions"] == {"webs/greet": counted(3, changed=1)}
    sides = [calls["first"][side]["error"] for side in ("before", "after")]
    assert sides == ["handler greet: too many", "handler greet: too much"]


async def test_the_result_of_an_effect_and_what_a_handler_yields_are_compared(again: Again) -> None:
    file = again.changed("longer.py", "return len(request.text)", "return len(request.text) + 1")
    ended = await again.replays(file, "--call", "notify")
    assert ended.status == 1
    assert "effect webs/notify for webs.example.com/default/" in ended.stdout
    assert "came to   now   returned " in ended.stdout
    assert "\nwebs/notify  0     4" in ended.stdout
    other = again.changed("filed.py", '"replicas": str(web.spec.replicas)', '"replicas": "7"')
    ended = await again.replays(other, "--call", "file", "--object", SHOP)
    assert ended.status == 1
    assert '  result    ["apply configmaps/file-shop"].data.replicas: "2" -> "7"' in ended.stdout
    late = again.changed("late.py", 'assert web.spec.image == "a"', "assert retry")
    assert (await again.told(late, "--call", "rotate", status=1))["functions"] == {"webs/rotate": counted(0, changed=2)}


DOES = {
    "the network": [
        "socket.create_connection(('127.0.0.1', 9))",
        "await asyncio.open_connection('127.0.0.1', 9)",
        "await asyncio.get_running_loop().getaddrinfo('localhost', 9)",
    ],
    "processes": ["subprocess.run(['touch', f'{DONE}/run'])"],
    "writing to files": ["open(f'{DONE}/write', 'w')", "os.mkdir(f'{DONE}/make')"],
}
MADE = {"the network": set[str](), "processes": {"run"}, "writing to files": {"write", "make"}}


@pytest.mark.parametrize("kind", DOES)
async def test_what_a_call_would_do_is_refused_and_counted_though_it_is_swallowed(
    again: Again, kind: str, tmp_path: Path
) -> None:
    def done() -> list[Path]:
        return [*tmp_path.iterdir()]

    tried = "    try:\n        {}\n    except Exception:\n        os.write(2, b'not done\\n')\n"
    file = again.changed("doing.py", GREET, "".join(map(tried.format, DOES[kind])) + GREET)
    file.write_text(f"import asyncio, os, socket, subprocess\nDONE = {str(tmp_path)!r}\n" + file.read_text())
    refused = await again.replays(file, "--call", "greet", "--json")
    assert refused.stderr.count("not done\n") == 4 * len(DOES[kind]), refused
    calls = json.loads(refused.stdout)["calls"]
    assert calls["functions"] == {"webs/greet": counted(0, refused=4)}
    assert {name: each["calls"] for name, each in calls["refusals"].items()} == {kind: 4}
    assert not done()
    ended = await again.replays(file, "--call", "greet")
    assert f"4 refused {kind}, first " in ended.stdout.replace("\n", " ")
    allowed = await again.told(file, "--call", "greet", "--allow-network", status=0)
    assert allowed["functions"] == {"webs/greet": counted(4)}
    assert {each.name for each in done()} == MADE[kind]


async def test_reading_a_file_and_importing_a_module_are_no_such_thing(again: Again, tmp_path: Path) -> None:
    (tmp_path / "imported_in_a_call.py").write_text("X = 1\n")
    does = f"    sys.path.insert(0, {str(tmp_path)!r})\n    import imported_in_a_call\n    open(__file__).read()\n"
    file = again.changed("reading.py", GREET, does + GREET)
    file.write_text(f"import sys\n{file.read_text()}")
    assert (await again.told(file, "--call", "greet", status=0))["functions"] == {"webs/greet": counted(4)}


async def test_two_versions_are_both_called(again: Again) -> None:
    file = again.changed("raising.py", GREET, "    if web.spec.replicas == 3:\n        {}['x']\n" + GREET)
    calls = await again.told(file, "--against", again.file, "--call", "greet", "--call", "notify", status=1)
    assert calls["functions"] == {"webs/greet": counted(3, changed=1), "webs/notify": counted(4)}
    assert calls["first"]["before"]["error"] == "handler greet: KeyError: 'x'"
    assert calls["first"]["after"] == {"result": None, "error": ""}


async def test_calls_that_only_one_of_both_asks_for_are_not_made(again: Again) -> None:
    file = again.changed("silent.py", "    yield call(notify", "    return\n    yield call(notify")
    assert (await again.told(file, "--call", "notify", status=1))["functions"] == {
        "webs/notify": counted(0, only_before=4)
    }
    both = await again.told(file, "--against", again.file, "--call", "notify", status=1)
    assert both["functions"] == {"webs/notify": counted(0, only_after=4)}


async def test_a_class_that_reads_more_is_called_with_what_it_reads(again: Again) -> None:
    file = again.changed("reads.py", "    replicas: int = 1\n", "    replicas: int = 1\n    paused: bool = False\n")
    calls = (await again.replays(file, "--call", "greet", "--json")).stdout
    assert json.loads(calls)["calls"]["functions"] == {"webs/greet": counted(4)}


def stops(ended: Ended) -> list[str]:
    """What was said first at each stop."""
    return [line for line in ended.stdout.splitlines() if line.startswith(("handler ", "timer ", "effect ", "view "))]


async def test_a_break_calls_and_stops_at_the_first_line_with_what_it_was_given(again: Again) -> None:
    typed = "p reason, retry, diff, old\nc\n" + "c\n" * 3
    ended = await again.replays(again.file, "--break", "greet", "--object", SHOP, typed=typed)
    assert ended.status == 0, ended
    assert stops(ended) == [f"handler webs/greet, for {SHOP}"] * 3
    assert "(Pdb) ('create', 1, (), None)\n" in ended.stdout
    assert "  attempt   2, the last one\n" in ended.stdout
    assert "  then      raised too many\n" in ended.stdout
    line = OPERATOR.partition(GREET)[0].count("\n") + 1
    assert ended.stdout.count(f"calls.py({line})greet()\n") == 3, "at the first line"
    assert "levelog/handlers" not in ended.stdout, "only the user's frames are shown"
    assert "\nwebs/greet  3     0" in ended.stdout.partition("CALL")[2]
    ended = await again.replays(again.file, "--break", "rotate", "--break", "notify", typed="c\n" * 9)
    made = sorted(line.partition(",")[0] for line in stops(ended))
    assert made == ["effect webs/notify"] * 4 + ["timer webs/rotate"] * 2
    at = ("--break", SHOP, "--to", str(again.updated))
    ended = await again.replays(again.file, "--call", "file", *at, typed="c\n" * 40)
    assert stops(ended).count(f"handler webs/file, for {SHOP}") == 1, "a decision is stopped in with its calls"


async def test_pdb_opens_where_a_call_raises_and_in_the_first_that_differs(again: Again) -> None:
    raising = again.changed("raising.py", GREET, "    if web.spec.replicas == 3:\n        {}['x']\n" + GREET)
    ended = await again.replays(raising, "--call", "greet", "--pdb", typed="p web.spec.replicas\nc\nc\n")
    assert ended.status == 1
    assert stops(ended)[0] == f"handler webs/greet, for {SHOP}"
    assert "  raises    KeyError: 'x'\n" in ended.stdout
    assert "(Pdb) 3\n" in ended.stdout
    longer = again.changed("longer.py", "return len(request.text)", "return len(request.text) + 1")
    ended = await again.replays(longer, "--call", "notify", "--pdb", typed="p request.text\nc\n")
    assert [line.partition(",")[0] for line in stops(ended)] == ["effect webs/notify"]
    assert ended.stdout.count("the first call that differs") == 1


async def test_a_bundle_holds_what_is_called_again(again: Again, tmp_path: Path) -> None:
    bundle = tmp_path / "calls.jsonl"
    exported = await again.levelog.ends("export", bundle, env=again.env)
    assert exported.status == 0, exported.stderr
    again.env, before = {"LEVELOG_NATS_URL": "nats://127.0.0.1:1", "LEVELOG_APPLICATION": "webs"}, again.env
    try:
        calls = await again.told(again.file, "--bundle", bundle, *ALL, status=0)
    finally:
        again.env = before
    assert calls["functions"] == {name: counted(made) for name, made in CALLS.items()}


REFUSED = {
    (
        "--call",
        "great",
    ): "--call great: no handler, timer or effect is named so: there are webs/compare, webs/file, webs/greet, "
    "webs/notify, webs/rotate",
    ("--call", "told"): "--call told: no handler, timer or effect is named so",
    ("--call", "guard"): "--call guard: that is a daemon",
    ("--break", "guard"): "--break guard: that is a daemon",
    (
        "--break",
        "great",
    ): "there are webs/compare, webs/file, webs/greet, webs/notify, webs/rotate, webs/tell, webs/told;",
}


async def test_what_cannot_be_called_again_is_refused_in_one_sentence(again: Again) -> None:
    file = again.levelog.folder / "daemon.py"
    file.write_text(OPERATOR + DAEMON)
    for arguments, words in REFUSED.items():
        assert words in await again.levelog.refused("replay", file, *arguments, status=2, env=again.env)


async def test_timers_without_records_are_not_called_and_cannot_be_asked_for(again: Again) -> None:
    file = again.levelog.folder / "unrecorded.py"
    file.write_text(f"import os\n{OPERATOR}{UNRECORDED}")
    ended = await again.replays(file, "--json")
    assert ended.stderr == "", ended
    assert {each.partition("/")[2] for each in json.loads(ended.stdout)["views"]} >= {"greet", "rotate", "told"}
    ended = await again.levelog.ends("what-if", file, "--code", again.file, env=again.env)
    assert (ended.stdout, ended.stderr) == ("no decision differs\n", "")
    said = await again.levelog.refused("replay", file, "--call", "probe", status=2, env=again.env)
    assert said.startswith("--call probe: no handler, timer or effect is named so")
