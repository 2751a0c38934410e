"""`levelog export`, and what works from the file that it writes: with no cluster, NATS or SQL server."""

import difflib
import json
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from levelog import Level, Operator
from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, Version
from levelog_base.wire.records import BookmarkNoted, ContactLost
from levelog_processors.program import Program
from levelog_replay.bundles.reading import open_bundle, refuse_other
from levelog_sandbox import Sandbox
from rigs.kinds import Service
from rigs.levelog import KEY, WEBS_FILE, Levelog, define_webs, python
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.recorded import GREEDY, scale
from rigs.webs import NOON, PODS

TELLTALE = """
import atexit, sys
KINDS = ("kubernetes_asyncio", "levelog_kube", "levelog_actuator", "levelog_ingest", "levelog_sandbox")
atexit.register(lambda: print("loaded:", sorted(m for m in sys.modules if m.startswith(KINDS)), file=sys.stderr))
"""
SHOP = "webs.example.com/default/shop"


others = Operator("webs")


@others.view
def named(service: Service) -> Level[str]:
    return Level(desired=service.metadata.name, actual=service.metadata.name)


class Exported:
    """A bundle of an application that is gone with its servers, and a folder to look at it in."""

    def __init__(self, folder: Path, scaled: int, env: dict[str, str]) -> None:
        self.levelog = Levelog(folder)
        self.levelog.env.pop("LEVELOG_REDACTION_KEY_FILE")
        self.env = env
        """Where log and database are, for comparison."""
        self.file = folder / "shop.jsonl"
        self.greedy = folder / "greedy.py"
        self.greedy.write_text(GREEDY)
        self.scaled = scaled
        """Sequence of the record that asks for four replicas."""

    def copied(self, folder: Path) -> "Exported":
        shutil.copy(self.file, folder)
        return Exported(folder, self.scaled, self.env)

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    def changed(self, name: str, lines: list[str]) -> Path:
        other = self.file.with_name(name)
        other.write_text("".join(f"{line}\n" for line in lines))
        return other


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exported(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Exported]:
    home = tmp_path_factory.mktemp("exported")
    url = f"sqlite:///{home}/levelog.db"
    async with NatsServer() as nats, Sandbox() as sandbox:
        env = {"LEVELOG_NATS_URL": nats.url, "LEVELOG_DATABASE_URL": url}
        await define_webs(sandbox)
        cluster = Cluster(sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
        async with Processing(
            nats.url, url, cluster=cluster, redaction=Redactor(KEY.read_bytes().strip()).digest
        ) as stack:
            bookmark = BookmarkNoted(resource=PODS, version=Version(5), time=NOON)
            lost = ContactLost(resource=PODS, error="gone", time=NOON)
            scaled = await scale(stack, bookmark, lost, bookmark, bookmark, labels={"team": "a"})
        folder = home / "elsewhere"
        folder.mkdir()
        bundle = Exported(folder, scaled, env)
        levelog = Levelog(home, sandbox.kubeconfig(home / "kubeconfig"))
        written = await levelog.ends("export", bundle.file, env=env)
        assert written.status == 0, written.stderr
        assert "5 decisions, " in written.stdout
        assert written.stdout.endswith(" records\n")
        part = bundle.file.with_name("part.jsonl")
        arguments = ("--object", SHOP, "--to", str(scaled - 1))
        written = await Levelog(home).ends("export", part, *arguments, env=env)
        assert (written.status, written.stdout.endswith(" records\n")) == (0, True)
        cut = ("--from", str(scaled), "--bookmarks")
        written = await Levelog(home).ends("export", bundle.file.with_name("end.jsonl"), *cut, env=env)
        assert "2 decisions, " in written.stdout, written
        yield bundle


async def test_decisions_in_a_bundle_are_made_again_and_a_planted_bug_is_found(exported: Exported) -> None:
    telling = exported.file.with_name("webs.py")
    telling.write_text(WEBS_FILE.read_text() + TELLTALE)
    replay = ("replay", telling, "--bundle", exported.file, "--json")
    same = await exported.levelog.ends(*replay, is_preloaded=False)
    assert same.status == 0, same.stderr
    assert "loaded: []" in same.stderr, "no Kubernetes client"
    assert not exported.levelog.data.exists()
    counts = json.loads(same.stdout)["views"]["webs/pods"]
    assert (counts["same"], counts["skipped"]) == (5, 0)
    both = await exported.levelog.ends(*replay, "--against", exported.greedy)
    assert both.status == 1, both.stderr
    assert json.loads(both.stdout)["first"]["cause"] == exported.scaled
    assert "pods/default/shop-2" in both.stdout, "intents are in the bundle"


async def test_a_bundle_of_a_range_and_an_object_holds_these_decisions_and_all_records_before(
    exported: Exported,
) -> None:
    part = exported.file.with_name("part.jsonl")
    same = await exported.levelog.ends("replay", exported.greedy, "--bundle", part, "--json")
    assert same.status == 0, same.stderr
    assert json.loads(same.stdout)["views"]["webs/pods"]["same"] == 2
    assert held(part, "webs.example.com/default/other")


def held(file: Path, text: str) -> int:
    return sum('"line":"record"' in line and text in line for line in file.read_text().splitlines())


async def test_a_bundle_that_begins_later_holds_the_state_of_then_and_what_came_after(exported: Exported) -> None:
    end, scaled = exported.file.with_name("end.jsonl"), str(exported.scaled)
    assert [held(file, '"name":"shop"') for file in (exported.file, end)] == [4, 2]
    same = await exported.levelog.ends("replay", WEBS_FILE, "--bundle", end, "--from", scaled, "--json")
    assert (same.status, json.loads(same.stdout)["views"]["webs/pods"]["same"]) == (0, 2), same
    history = await exported.levelog.ends("history", SHOP, "--bundle", end)
    assert f"the bundle begins with record {scaled}" in history.stderr
    said = await exported.levelog.refused("history", SHOP, "--at", "9", "--bundle", end, status=2)
    assert said.startswith(f"sequence 9 is before the bundle begins: its first record is {scaled}, of ")
    before = ("replay", WEBS_FILE, "--bundle", end, "--from", "9")
    assert "is before history begins" in await exported.levelog.refused(*before, status=2)


async def test_bookmarks_stay_out_unless_asked_for_but_for_those_that_end_a_lost_contact(exported: Exported) -> None:
    marks = "levelog.bookmark.noted"
    partitions = json.loads(exported.lines()[0])["partitions"]
    asked = exported.file.with_name("asked.jsonl")
    written = await exported.levelog.ends("export", asked, "--bookmarks", env=exported.env)
    assert written.status == 0, written
    assert (held(exported.file, marks), held(asked, marks)) == (partitions, 3 * partitions)
    expiring = exported.levelog.folder / "expiring.py"
    text = WEBS_FILE.read_text().replace("@op.index(", "@op.index(expires=timedelta(hours=1), ")
    expiring.write_text(text.replace("from levelog import", "from datetime import timedelta\n\nfrom levelog import", 1))
    said = await exported.levelog.refused("replay", expiring, "--bundle", exported.file, status=2)
    assert said.endswith("by whose times entries of indices with expires= end: export it with --bookmarks")
    ended = await exported.levelog.ends("replay", expiring, "--bundle", asked)
    assert "SAME" in ended.stdout, ended


def is_open(file: Path) -> bool:
    return str(file) in [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]


async def test_a_bundle_is_closed_once_it_has_said_where_it_ends(exported: Exported) -> None:
    bundle = open_bundle(exported.file)
    first, record, last = await bundle.ends()
    assert record is not None
    assert first == record.sequence <= last
    assert not is_open(exported.file)


async def test_decisions_on_objects_with_labels_are_chosen(exported: Exported) -> None:
    async def views(labels: str) -> dict[str, int]:
        file = exported.file.with_name(f"{len(labels)}.jsonl")
        written = await exported.levelog.ends("export", file, "-l", labels, env=exported.env)
        assert written.status == 0, written.stderr
        return Counter(json.loads(line)["parent"] for line in file.read_text().splitlines() if '"decision"' in line)

    assert await views("team=a") == {SHOP: 4}
    assert await views("!team") == {"webs.example.com/default/other": 1}
    said = await exported.levelog.refused("export", "none.jsonl", "-l", "team=none", status=2, env=exported.env)
    assert "no decision of application webs was recorded with team=none: " in said
    said = await exported.levelog.refused("export", "none.jsonl", "-l", "a in (b)", status=2, env=exported.env)
    assert "cannot be read at" in said


async def test_history_is_read_from_a_bundle_as_from_the_log(exported: Exported) -> None:
    bundle = ("--bundle", exported.file)
    for command in (("history", SHOP, "--json"), ("history", "pods", "--receipts", "--json")):
        from_log = await exported.levelog.ends(*command, env=exported.env)
        from_bundle = await exported.levelog.ends(*command, *bundle)
        assert (from_bundle.status, from_bundle.stdout) == (0, from_log.stdout)
        assert from_bundle.stdout
    decisions = ("history", "webs.example.com", "--decisions", "--json")
    from_log = await exported.levelog.ends(*decisions, env=exported.env)
    from_bundle = await exported.levelog.ends(*decisions, *bundle)
    assert (from_bundle.status, from_bundle.stdout) == (0, from_log.stdout)
    assert from_bundle.stdout.count('"type":"decision"') == 5
    then = await exported.levelog.ends("history", SHOP, "--at", str(exported.scaled), *bundle)
    assert (then.status, "replicas: 4" in then.stdout) == (0, True), then
    for arguments, why in (
        ((SHOP, "--follow"), "nothing more happens in a bundle"),
        ((SHOP, "--at", "99999"), "the bundle ends at sequence"),
        (("webs.example.com/default/none",), "holds no record of"),
    ):
        refused = await exported.levelog.ends("history", *arguments, *bundle)
        assert (refused.status, why in refused.stderr) == (2, True), refused


async def test_bad_bundles_are_refused_in_one_sentence(exported: Exported, tmp_path: Path) -> None:
    lines = exported.lines()
    heading = json.loads(lines[0])
    record = next(n for n, line in enumerate(lines) if '"replicas":4' in line)
    decision = next(n for n, line in enumerate(lines) if '"line":"decision"' in line)
    other = exported.levelog.folder / "other.py"
    other.write_text(WEBS_FILE.read_text().replace('Operator("webs")', 'Operator("others")'))
    cases = {
        "newer": (
            [json.dumps({**heading, "format": 2, "levelog": "9.0"}), "{}"],
            "was written by a newer levelog (9.0",
        ),
        "cut": (lines[:-3], "its end is missing"),
        "half": ([*lines[:-1], lines[-1][:20]], f"line {len(lines)} cannot be read"),
        "changed": ([line.replace('"replicas":4', '"replicas":5') for line in lines], "its records are not those"),
        "lost": (lines[:record] + lines[record + 1 :], "its records are not those"),
        "twice": (lines[: record + 1] + lines[record:], "its records are not those that were exported"),
        "unmade": (lines[:decision] + lines[decision + 1 :], f"line {decision + 1} is out of its place"),
        "garbled": ([*lines[:5], "garbage", *lines[6:]], "line 6 cannot be read"),
        "late": ([lines[0], *lines[2:5], lines[1], *lines[5:]], "its records are not those that were exported"),
        "text": (["nothing of this kind"], "is no bundle"),
        "empty": ([], "is no bundle"),
    }
    for name, (changed, words) in cases.items():
        file = exported.changed(f"{name}.jsonl", changed)
        with pytest.raises(ConfigurationError) as refusal:
            open_bundle(file)
        assert words in str(refusal.value), name
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        open_bundle(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="holds no records of services, which the operators read; it holds"):
        refuse_other(open_bundle(exported.file), "webs", Program([others]))
    cut = exported.file.with_name("cut.jsonl")
    said = await exported.levelog.refused("replay", WEBS_FILE, "--bundle", cut, status=2)
    assert "is damaged: its end is missing" in said
    said = await exported.levelog.refused("replay", other, "--bundle", exported.file, status=2)
    assert "is of application webs, the operators given are others" in said


GOLDEN = """
import pytest
from operators import op


@pytest.mark.levelog_history("shop.jsonl")
def test_it_decides_as_recorded(decides_as_recorded):
    decides_as_recorded(op)
"""


async def golden(
    exported: Exported, operators: str, *options: str, test: str = GOLDEN, env: Mapping[str, str] = os.environ
) -> tuple[int, str]:
    folder = exported.file.parent
    (folder / "operators.py").write_text(operators)
    (folder / "test_golden.py").write_text(test)
    settings = ("asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function", "filterwarnings = error")
    (folder / "pytest.ini").write_text("\n".join(("[pytest]", "addopts = --strict-markers", *settings)))
    ran = await python("-B", "-m", "pytest", "-q", "test_golden.py", *options, folder=folder, env=env)
    return ran.status, ran.stdout + ran.stderr


async def test_a_golden_test_finds_a_planted_bug_and_its_recording_is_rewritten_on_request(
    exported: Exported, tmp_path: Path
) -> None:
    exported = exported.copied(tmp_path)
    before = exported.lines()
    status, said = await golden(exported, WEBS_FILE.read_text())
    assert status == 0, said
    status, said = await golden(exported, GREEDY)
    assert status == 1, said
    assert f"of {SHOP}, because of record {exported.scaled}" in said
    assert "desired: - shop-3" in said
    assert "pods/default/shop-2" in said
    assert exported.lines() == before
    status, said = await golden(exported, GREEDY, "--levelog-update")
    assert status == 0, said
    diff = [line for line in difflib.unified_diff(before, exported.lines(), n=0) if line[0] in "+-"][2:]
    assert {json.loads(line[1:])["line"] for line in diff} == {"outcome", "intent"}, "the end has the same counts"
    assert len(diff) <= 6
    status, said = await golden(exported, GREEDY)
    assert status == 0, said


async def test_a_golden_test_of_secret_values_needs_the_key_of_the_log(exported: Exported, tmp_path: Path) -> None:
    exported = exported.copied(tmp_path)
    before = exported.lines()
    image, variables = '"image": web.spec.image', '"env": [{"name": "PASSWORD", "value": "shop-secret"}]'
    secret = WEBS_FILE.read_text().replace(image, f"{image}, {variables}")
    for options in ((), ("--levelog-update",)):
        status, said = await golden(exported, secret, *options)
        assert (status, exported.lines()) == (1, before), said
        assert "set LEVELOG_REDACTION_KEY_FILE" in said
    env = {**os.environ, "LEVELOG_REDACTION_KEY_FILE": str(KEY)}
    status, said = await golden(exported, secret, env=env)
    assert status == 1
    assert "do not come out as recorded" in said


async def test_a_key_that_is_not_the_logs_is_refused(exported: Exported, tmp_path: Path) -> None:
    exported = exported.copied(tmp_path)
    before = exported.lines()
    key = tmp_path / "other.key"
    key.write_text("0123456789abcdef")
    wrong = {"LEVELOG_REDACTION_KEY_FILE": str(key)}
    why = "was recorded with another redaction key, so that its hashes cannot be compared: give --redaction-key-file"
    status, said = await golden(exported, GREEDY, "--levelog-update", env={**os.environ, **wrong})
    assert (status, exported.lines()) == (1, before), said
    assert f"shop.jsonl {why}" in said
    bundle = ("--bundle", exported.file)
    said = await exported.levelog.refused("replay", WEBS_FILE, *bundle, status=2, env=wrong)
    assert said.startswith(f"bundle {exported.file} {why}")
    for command in (("replay", WEBS_FILE), ("what-if", WEBS_FILE, "--code", exported.greedy)):
        said = await exported.levelog.refused(*command, status=2, env={**exported.env, **wrong})
        assert said.startswith(f"the log {why}")
    right = {"LEVELOG_REDACTION_KEY_FILE": str(KEY)}
    said = await exported.levelog.refused("replay", WEBS_FILE, *bundle, "--redact", "env:A", status=2, env=right)
    assert "was recorded with other rules of redaction, " in said
    for settings in (right, {}):
        assert (await exported.levelog.ends("replay", WEBS_FILE, *bundle, env=settings)).status == 0


async def test_a_bundle_tells_nothing_of_its_key_but_a_digest(exported: Exported) -> None:
    heading = json.loads(exported.lines()[0])
    assert heading["redaction"] == Redactor(KEY.read_bytes().strip()).digest
    assert KEY.read_text().strip() not in exported.file.read_text()


@pytest.mark.long
async def test_a_golden_test_that_cannot_be_made_says_why_in_one_sentence(exported: Exported, tmp_path: Path) -> None:
    exported = exported.copied(tmp_path)
    exported.file.write_text("".join(f"{line}\n" for line in exported.lines()[:-1]))
    status, said = await golden(exported, WEBS_FILE.read_text())
    assert (status, "golden.py" in said.replace("test_golden.py", "")) == (1, False), said
    assert "shop.jsonl is damaged: its end is missing" in said
    for text, sentence in (
        (GOLDEN.replace("(decides_as_recorded)", "()", 1), "takes decides_as_recorded as an argument, and calls it"),
        (GOLDEN.replace('@pytest.mark.levelog_history("shop.jsonl")', ""), "say which bundle: @pytest.mark"),
    ):
        status, said = await golden(exported, WEBS_FILE.read_text(), test=text)
        assert (status, sentence in said) == (1, True), said
