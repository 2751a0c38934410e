import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from levelog import External, Index, Level, Objects, Operator, Struct
from levelog.resources import external_key
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import ObjectKey
from levelog_ingest.sources.encoding import Encoder
from levelog_processors.program import Program
from rigs.kinds import Web

EVERY = timedelta(seconds=30)


class Branch(External, plural="branches"):
    commit: str


class Zone(External, plural="zones", scope="Namespaced"):
    pass


class Git(Struct):
    url: str = ""


def with_index(op: Operator) -> Operator:
    @op.index
    def tips(branch: Branch) -> Iterator[tuple[str, str]]:
        yield branch.name, branch.commit

    return op


def with_source(op: Operator) -> Operator:
    @op.source(Branch, every=EVERY)
    def branches() -> list[Branch]:
        return []

    return op


def test_a_record_is_made_and_read_by_its_own_fields() -> None:
    branch = Branch(name="main", commit="2f1c")
    assert (branch.metadata.name, branch.metadata.namespace) == ("main", "")
    op = with_index(Operator("git"))
    assert op.indices["tips"].entries(b'{"metadata":{"name":"main"},"name":"main","commit":"2f1c"}') == [
        ("main", "2f1c")
    ]


def test_a_name_may_hold_slashes() -> None:
    key = external_key(Branch, "feature/a/b", "")
    assert ObjectKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("cls", "name", "namespace", "said"),
    [
        (Branch, "", "", "may not be empty"),
        (Branch, " a", "", "blank"),
        (Branch, "a\nb", "", "controls"),
        (Branch, "\ud800", "", "controls"),
        (Branch, "a" * 501, "", "501 bytes; at most 500"),
        (Branch, 7, "", "have to be texts"),
        (Branch, "a", "b", 'scope="Namespaced"'),
        (Zone, "a", "", "namespace is ''"),
        (Zone, "a", "b/c", "slash"),
        (Zone, "a", "_", "slash"),
    ],
)
def test_a_name_that_cannot_be_recorded_is_refused(cls: type[External], name: Any, namespace: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        external_key(cls, name, namespace)


def test_a_record_tells_the_trace_that_it_comes_from_beside_its_content() -> None:
    good = f"00-{7:032x}-{8:016x}-01"
    op = with_source(with_index(Operator("git")))
    encoder = Encoder(Program([op]).sources["branches.external"], Redactor(is_off=True))
    plain, traced = Branch(name="a", commit="1"), Branch(name="b", commit="1").traced(good)
    garbled = [Branch(name=name, commit="1").traced(text) for name, text in GARBLED.items()]
    encoded = encoder.whole([plain, traced, *garbled])
    assert encoded.complaint == ""
    assert {key.name: trace for key, trace in encoded.traces.items()} == {"b": good}
    assert {key.name for key in encoded.bodies} == {"a", "b", *GARBLED}
    assert not any(b"traceparent" in body or good.encode() in body for body in encoded.bodies.values())


GARBLED: Final = {
    "empty": "",
    "short": "00-7-8-01",
    "zero": f"00-{0:032x}-{8:016x}-01",
    "version": f"ff-{7:032x}-{8:016x}-01",
    "upper": f"00-{10:032X}-{8:016x}-01",
    "line": f"00-{7:032x}-{8:016x}-01\n",
}


def test_external_classes_are_no_resources_of_the_api() -> None:
    op = with_source(with_index(Operator("git")))
    program = Program([op])
    assert (set(program.resources), set(program.sources)) == (set(), {"branches.external"})
    assert program.watched == {"branches.external"}
    assert op.resources() == {}


def test_a_source_changes_no_fingerprint() -> None:
    def fingerprint(value: str) -> str:
        op = with_index(Operator("git"))

        @op.source(Branch, every=EVERY)
        def branches() -> list[Branch]:
            return [Branch(name=value, commit="")]

        return Program([op]).fingerprint

    assert fingerprint("a") == fingerprint("b")


def test_settings_and_logger_are_given() -> None:
    op = Operator("git", settings=Git(url="here"))

    @op.source(Branch, every=EVERY)
    def branches(git: Git) -> list[Branch]:
        return [Branch(name=git.url, commit="")]

    assert op.sources["branches.external"].begin() == [Branch(name="here", commit="")]


def test_a_view_reads_records_by_class_and_by_index() -> None:
    op = with_source(with_index(Operator("git")))

    @op.view(reads=[Branch])
    def followed(web: Web, tips: Index[str, str], objects: Objects) -> Level[str]:
        return Level(desired="", actual="")

    program = Program([op])
    assert program.views["git/followed"].reads == {"webs.example.com", "branches.external"}


@pytest.mark.parametrize("depth", [300, 500, 800, 10_000])
def test_a_record_of_any_depth_is_recorded_or_refused_by_itself(depth: int) -> None:
    class Deep(External, plural="deeps"):
        value: Any

    op = Operator("deep")

    @op.source(Deep, every=EVERY)
    def deeps() -> list[Deep]:
        return []

    value: Any = {"PASSWORD": "hunter2"}
    for _ in range(depth):
        value = {"env": value}
    encoder = Encoder(op.sources["deeps.external"], Redactor(b"0123456789abcdef"))
    found = encoder.whole([Deep(name="deep", value=value), Deep(name="flat", value={"env": {"PASSWORD": "hunter2"}})])
    assert external_key(Deep, "flat", "") in found.bodies
    assert not any(b"hunter2" in body for body in found.bodies.values())
    if found.refused:
        assert "Deep 'deep' cannot be recorded: " in found.complaint
