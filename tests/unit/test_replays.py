"""What replays are given: lists of the past in expressions, edits as they are typed, and a redaction."""

from pathlib import Path
from typing import Any

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.secrets.secretrules import Rules
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import ObjectDeleted, ObjectSeen
from levelog_processors.program import Program
from levelog_replay.tape import Rebuilt
from levelog_replay.travel.edits import WantedEdits
from levelog_replay.travel.expressions import PastState
from levelog_store.rows import Origin
from levelog_testing.recordings import redactor
from rigs.webs import PODS, deleted, lists_done, logged, pod, web

ORIGIN = Origin(cluster=Cluster("c"), application=Application("webs"), partitions=4)
ASKED = ("pods", "pods/default", "pods/other", "webs.example.com", "pods/default/a")


def listed(past: PastState) -> dict[str, Any]:
    return {name: sorted((o.metadata.name, o.metadata.resourceVersion) for o in past.objects(name)) for name in ASKED}


def test_a_list_that_follows_the_records_is_as_one_made_anew() -> None:
    told: list[ObjectSeen | ObjectDeleted] = [
        *(pod(name, version) for version, name in enumerate("abcd", start=1)),
        web("shop", 5),
        pod("a", 6, image="b"),
        deleted(pod("b", 3), 7),
        pod("c", 2),  # older than what is known
        pod("b", 8, uid="uid-again"),
    ]
    records = logged(told)
    for partition in range(4):
        records += logged(lists_done(PODS, 9), first=len(records) + 1, partition=partition)
    records += logged([pod("e", 10)], first=len(records) + 1)
    rebuilt = Rebuilt(Program(()), ORIGIN)
    past = PastState(rebuilt.state, {}, set())
    counts = [len(listed(past)["pods"])]
    for each in records:
        rebuilt.fold([each])
        past.follow(each)
        found = listed(past)
        assert found == listed(PastState(rebuilt.state, {}, set())), each
        counts.append(len(found["pods"]))
    assert counts[:10] == [0, 1, 2, 3, 4, 4, 4, 3, 3, 4]
    assert counts[-2:] == [0, 1], "a complete list without them swept the pods"


def edits(*, value: tuple[int, str] | None = None, delay: str = "") -> WantedEdits:
    return WantedEdits(dropped=[], swapped=None, delay=delay, value=value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("spec.replicas=2", 2),
        ("spec.day=2026-13-45", "2026-13-45"),
        ("spec.at=22:22", "22:22"),
        ("spec.ports=[80, 443]", [80, 443]),
        ("spec.image=", None),
    ],
)
def test_a_value_is_read_as_in_a_manifest(text: str, value: object) -> None:
    assert edits(value=(75, text)).edits().values == (75, text.partition("=")[0], value)


@pytest.mark.parametrize("text", ["a=[1", "a=&a [*a]", "a=1\n---\n2", "a=\udc80", "a=.nan"])
def test_a_value_that_is_none_in_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the value is no YAML"):
        edits(value=(75, text)).edits()


@pytest.mark.parametrize("delay", ["soon", "0s", "999999999d", pytest.param("9" * 5000 + "s", id="long")])
def test_a_delay_that_no_clock_reaches_is_refused(delay: str) -> None:
    with pytest.raises(ConfigurationError, match="write how long"):
        edits(delay=delay).edits()


KEY = b"0123456789abcdef0123456789abcdef"


def test_a_test_takes_key_and_rules_from_the_variables_that_the_processes_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redaction.key"
    file.write_bytes(KEY + b"\n")
    monkeypatch.setenv("LEVELOG_REDACTION_KEY_FILE", str(file))
    assert redactor().digest == Redactor(KEY).digest
    monkeypatch.setenv("LEVELOG_REDACT", "annotation:token,webs.example.com:spec.password !env:PATH")
    rules = Rules.parse(["annotation:token", "webs.example.com:spec.password", "!env:PATH"])
    assert redactor().digest == Redactor(KEY, rules).digest != Redactor(KEY).digest
    monkeypatch.setenv("LEVELOG_REDACTION", "off")
    assert redactor().digest == Redactor(is_off=True).digest


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELOG_REDACTION_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"redaction key file .*/none cannot be read: No such file"):
        redactor()
    (tmp_path / "none").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"^redaction key file .*/none: the redaction key has 5 bytes"):
        redactor()
