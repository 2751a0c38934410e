"""Timers, start-up, Events and children of a Kopf file, and what of its settings and marks means nothing here."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog.compat import kopf
from levelog.compat.kopf import attempts
from levelog.compat.kopf.kinds import pacing
from levelog_cli.loading import load_operators
from levelog_processors.program import Program
from rigs.kopffiles import kopf_run, load_kopf

OWNER: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Shop",
    "metadata": {"name": "a", "namespace": "default", "uid": "u1", "labels": {"team": "red"}},
}


def test_a_timer_is_called_in_its_interval_and_its_result_is_written(tmp_path: Path) -> None:
    source = """
    @kopf.timer("example.com", "v1", "shops", interval=60, initial_delay=10, labels={"a": kopf.ABSENT})
    async def look(spec, status, retry, patch, **_):
        told.append((spec["size"], status.get("look"), retry))
        if len(told) == 1:
            raise kopf.TemporaryError("not now", delay=5)
        patch.status["n"] = len(told)
        return len(told)
    """
    with kopf_run(tmp_path, source) as run:
        assert run.apply(size=1) == []
        run.apply("b", metadata={"labels": {"a": "b"}}, size=7)
        run.simulation.advance(timedelta(seconds=30))
        assert run.told() == [(1, None, 0), (1, None, 1)]
        assert run.read()["status"] == {"look": 2, "n": 2}
        run.simulation.advance(timedelta(seconds=60))
        assert run.told()[0] == (1, 2, 0)
        assert "finalizers" not in run.read()["metadata"]


def test_start_up_handlers_run_before_others_and_their_memo_reaches_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    @kopf.on.startup()
    async def begin(settings, memo, logger, **_):
        settings.peering.standalone = True
        settings.peering.name = "shops"
        settings.persistence.finalizer = "mine"
        settings.persistence.progress_storage = kopf.StatusProgressStorage(field="x")
        memo.client = "a client"

    kopf.on.cleanup()(lambda memo, **_: told.append(memo.client))

    @kopf.on.create("example.com", "v1", "shops")
    def made(memo, settings, **_):
        told.append((memo.client, settings.persistence.finalizer))
        memo.client = "another"

    @kopf.on.login(retries=3)
    def log_in(**_):
        raise AssertionError("is not called")

    @kopf.on.probe(id="now")
    def probe(**_):
        raise AssertionError("is not called")
    """
    with caplog.at_level(logging.WARNING):
        with kopf_run(tmp_path, source) as run:
            assert run.apply() == [("a client", "mine")]
            assert run.apply("b") == [("a client", "mine")]
        assert run.told() == ["a client"]
    warned = [record.message for record in caplog.records]
    assert [text for text in warned if "kopf.on.login" in text or "kopf.on.probe" in text]
    named = sorted(text.split()[0] for text in warned if "means nothing" in text)
    means_nothing = {"peering.name", "persistence.finalizer", "persistence.progress_storage"}
    assert set(named) == {f"settings.{name}" for name in means_nothing}


def test_events_about_the_object_are_posted_with_the_result_of_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(body, patch, **_):
        patch.status["phase"] = "made"
        kopf.info(body, reason="Made", message="it is there")
        kopf.event(body, type="Error", reason="Odd", message="but odd")
        kopf.warn({"metadata": {"uid": "other"}}, reason="Other")
        try:
            raise ValueError("wrong")
        except ValueError:
            kopf.exception(body, message="it says")
    """
    with kopf_run(tmp_path, source) as run:
        run.apply()
        found = sorted((event.type, event.reason, event.note, event.kind) for event in run.simulation.events)
    assert found == [
        ("Normal", "Made", "it is there", "Shop"),
        ("Warning", "Odd", "but odd", "Shop"),
        ("Warning", "ValueError", "it says: wrong", "Shop"),
    ]
    assert "not about the object of the handler" in caplog.text


@pytest.mark.parametrize("reason", ["", "x" * 129, None])
def test_an_event_that_the_api_would_refuse_is_not_posted_and_the_call_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: object
) -> None:
    source = f"""
    @kopf.on.create("example.com", "v1", "shops")
    def made(body, **_):
        told.append("called")
        kopf.event(body, type="Normal", reason={reason!r})
        return "done"
    """
    with kopf_run(tmp_path, source) as run:
        assert run.apply() == ["called"]
        run.simulation.advance(timedelta(minutes=10))
        assert run.told() == []
        assert run.read()["status"] == {"made": "done"}
    assert "not posted" in caplog.text


def test_a_note_of_any_length_and_letters_is_posted_as_far_as_the_api_takes_it(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(body, **_):
        kopf.info(body, reason="Long", message="x" * 100_000)
        kopf.info(body, reason="Odd", message="\\ud800")
        return "done"
    """
    with kopf_run(tmp_path, source) as run:
        run.apply()
        assert run.read()["status"] == {"made": "done"}
        assert {each.reason: each.note for each in run.simulation.events} == {
            "Long": "x" * 1021 + "…",
            "Odd": "\\ud800",
        }


def test_children_are_adopted_by_the_object_of_the_handler(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(body, **_):
        child = {"spec": {"template": {}}}
        kopf.adopt([child], nested="spec.template")
        told.append(child)
    """
    with kopf_run(tmp_path, source) as run:
        [child] = run.apply(metadata={"labels": {"team": "red"}})
        [reference] = child["metadata"].pop("ownerReferences")
        assert child == {
            "metadata": {"generateName": "a-", "namespace": "default", "labels": {"team": "red"}},
            "spec": {"template": {"metadata": {"labels": {"team": "red"}}}},
        }
        uid = run.read()["metadata"]["uid"]
        assert reference == {
            "apiVersion": "example.com/v1",
            "kind": "Shop",
            "name": "a",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def test_what_a_child_has_of_its_own_stays_unless_it_is_forced() -> None:
    child = {"metadata": {"name": "own", "namespace": "there", "labels": {"team": "blue"}}}
    kopf.adopt(child, OWNER)
    kopf.adopt(child, OWNER)
    assert len(child["metadata"].pop("ownerReferences")) == 1
    assert child == {"metadata": {"name": "own", "namespace": "there", "labels": {"team": "blue"}}}
    kopf.adopt(child, OWNER, forced=True, strict=True)
    kopf.remove_owner_reference(child, OWNER)
    assert child == {
        "metadata": {"name": "a", "namespace": "default", "labels": {"team": "red"}, "ownerReferences": []}
    }
    assert kopf.build_object_reference(OWNER)["uid"] == "u1"
    with pytest.raises(LookupError, match="no handler is running"):
        kopf.adopt(child)
    with pytest.raises(TypeError, match="a child is a manifest"):
        kopf.label("text", {"a": "b"})
    import kubernetes.client  # slow to load, and needed by this test alone

    with pytest.raises(TypeError, match="a child is a manifest"):
        kopf.adopt(kubernetes.client.V1Pod(metadata=kubernetes.client.V1ObjectMeta(name="a")), OWNER)


def test_the_version_of_the_layer_counts_as_code_of_each_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
    @kopf.index("pods")
    def pods(name, **_):
        return {name: 1}

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        pass

    @kopf.timer("example.com", "v1", "shops", interval=5)
    def ticks(**_):
        pass

    @kopf.daemon("example.com", "v1", "shops")
    async def follow(**_):
        pass

    @kopf.on.resume("example.com", "v1", "shops")
    def again(**_):
        pass

    @kopf.on.event("example.com", "v1", "shops")
    def heard(**_):
        pass
    """

    def code() -> set[tuple[str, str, str]]:
        return {(each.kind, each.name, each.fingerprint) for each in Program([load_kopf(tmp_path, source)]).handlers}

    before = code()
    assert code() == before
    for module in (attempts, pacing):
        monkeypatch.setattr(module, "CODE", "kopf of another day")
    assert {f"{kind} {name.removeprefix('shops/')}" for kind, name, _ in code() - before} == {
        "effect again_resume_calls",
        "effect follow_runs",
        "effect made_handled",
        "effect ticks_calls",
        "event heard",
        "index @started",
        "index pods",
        "view again_resume",
        "view follow",
        "view made",
        "view ticks",
    }


SOURCE = """from levelog.compat import kopf

@kopf.on.startup()
def begin(settings, **_):
    settings.persistence.finalizer = "acme.io/mine"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="acme.io")

@kopf.on.create("example.com", "v1", "teams")
def made(meta, **_):  # of KopfFinalizerMarker this says nothing
    return {"handled": "kopf.zalando.org/last-handled-configuration" in meta.annotations}
"""


def told(file: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="levelog.compat.kopf"):
        load_operators([file])
    return [record.getMessage().partition(":")[0] for record in caplog.records]


def test_marks_of_kopf_that_a_file_names_are_told_when_it_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "teams.py"
    file.write_text(SOURCE)
    assert told(file, caplog) == ["teams.py, line 5", "teams.py, line 6"]
    assert "the finalizer is levelog/teams here" in caplog.messages[0]
    file.write_text(SOURCE.replace("settings.persistence", "settings.posting"))
    assert told(file, caplog) == ["teams.py, line 6"]  # the storage; the annotation is below
    file.write_text(
        SOURCE.partition("def made")[0].partition("@kopf.on.startup")[0] + "@kopf" + SOURCE.rpartition("@kopf")[2]
    )
    assert told(file, caplog) == ["teams.py, line 5"]
