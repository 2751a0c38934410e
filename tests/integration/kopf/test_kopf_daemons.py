"""Daemons of a Kopf file in a simulation, in its own time: how they begin, end, and keep their objects."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog import OperatorError
from levelog_testing import pacing
from rigs.kopffiles import Shop, kopf_run, load_kopf

KINDS = {"async def": "await ", "def": ""}


@pytest.mark.parametrize("kind", KINDS)
def test_a_daemon_runs_with_its_object_as_it_is_until_that_goes(tmp_path: Path, kind: str) -> None:
    source = f"""
    @kopf.daemon("example.com", "v1", "shops")
    {kind} follow(stopped, spec, body, status, labels, name, retry, **_):
        told.append((name, spec["size"], retry, bool(stopped), stopped.is_set()))
        while not {KINDS[kind]}stopped.wait(0.01 if {kind == "def"} else 60):
            told.append((spec["size"], body.spec["size"], dict(labels), body.metadata["name"], dict(status)))
        told.append(("ends", bool(stopped), str(stopped.reason)))
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply(size=1)[0] == ("a", 1, 0, False, False)
        kopf.told()
        kopf.apply(metadata={"labels": {"a": "b"}}, size=2)
        kopf.simulation.advance(timedelta(seconds=60))
        while (last := kopf.told()[-1:]) != [(2, 2, {"a": "b"}, "a", {})]:
            assert not last or last[0][0] in (1, 2)
            kopf.simulation.advance(timedelta(seconds=60))
        kopf.simulation.delete(Shop, "a", namespace="default")
        assert kopf.after(seconds=5)[-1] == ("ends", True, "unwanted")


def test_no_look_of_a_daemon_at_its_object_makes_a_copy_of_the_content(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops")
    async def follow(body, spec, **_):
        told.append((body["spec"] is body["spec"], spec["items"] is body["spec"]["items"], body["kind"]))
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply(items=["one"]) == [(True, True, "Shop")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_daemon_that_wants_to_end_its_process_fails_alone(tmp_path: Path, kind: str) -> None:
    source = f"""
    import sys

    @kopf.daemon("example.com", "v1", "shops")
    {kind} follow(stopped, name, **_):
        told.append(name)
        if name == "a":
            sys.exit(3)
        {KINDS[kind]}stopped.wait()
        told.append("ends")
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply("a") == ["a"]
        assert kopf.apply("b") == ["b"]
        kopf.simulation.delete(Shop, "b", namespace="default")
        kopf.simulation.advance(timedelta(seconds=5))
        assert "ends" in kopf.told()


WRAPPED = """
def wrapped(function):
    return lambda **kwargs: function(**kwargs)

@kopf.daemon("example.com", "v1", "shops")
@wrapped
async def follow(**_):
    return "done"
"""
REGISTERING = """
@kopf.daemon("example.com", "v1", "shops")
def follow(**_):
    kopf.register(lambda patch, **_: patch.status.update(follow="done"), id="inner")
"""


@pytest.mark.parametrize("source", [WRAPPED, REGISTERING], ids=["wrapped", "registering"])
def test_what_a_plain_daemon_leaves_to_be_waited_for_is_waited_for(tmp_path: Path, source: str) -> None:
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        kopf.apply()
        kopf.simulation.advance(timedelta(seconds=5))
        assert "done" in kopf.read()["status"].values()


def test_plain_daemons_have_a_thread_each(tmp_path: Path) -> None:
    source = """
    import threading

    @kopf.daemon("example.com", "v1", "shops")
    def follow(stopped, **_):
        told.append(threading.get_ident())
        stopped.wait()
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        running = [*kopf.apply("a"), *kopf.apply("b"), threading.get_ident()]
        assert len(running) == len(set(running)) == 3


@pytest.mark.parametrize("question", ["stopped.wait()", "while not stopped: time.sleep(0.01)"])
def test_time_passes_once_a_plain_daemon_has_asked_whether_to_end(tmp_path: Path, question: str) -> None:
    source = f"""
    import time

    @kopf.daemon("example.com", "v1", "shops")
    def follow(stopped, **_):
        for number in range(3_000_000):  # for longer than another thread waits for its turn
            pass
        told.append(number)
        {question}
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply() == [2_999_999]


@pytest.mark.parametrize("patched", [{}, {"status": {"phase": "cleaned up"}}])
@pytest.mark.parametrize("kind", KINDS)
def test_an_object_stays_until_its_daemon_has_cleaned_up_and_its_patch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, patched: dict[str, Any]
) -> None:
    monkeypatch.setattr(pacing, "_ENDS_WITHIN", 60.0)
    monkeypatch.setattr(pacing, "PATIENCE", timedelta(minutes=1))
    source = f"""
    @kopf.daemon("example.com", "v1", "shops", cancellation_backoff=60)
    {kind} follow(stopped, patch, body, **_):
        told.append(("begins", list(body.metadata["finalizers"])))
        {KINDS[kind]}stopped.wait()
        for _ in range(3_000_000):  # for longer than another thread waits for its turn
            pass
        told.append(("ends", body.metadata["name"]))
        patch.update({patched})
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply(size=1) == [("begins", ["levelog/shops"])]
        kopf.simulation.delete(Shop, "a", namespace="default")
        assert kopf.after(seconds=1) == [("ends", "a")]
        assert [body for body in kopf.writes() if "status" in body] == ([patched] if patched else [])
        assert kopf.simulation.objects(Shop) == []


def test_an_object_whose_daemon_returned_or_gave_up_or_never_ran_goes_at_once(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops", when=lambda spec, **_: spec["how"] != "never")
    async def follow(spec, name, **_):
        told.append(name)
        if spec["how"] == "gives up":
            raise kopf.PermanentError("no use")
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply("a", how="returns") == ["a"]
        assert kopf.apply("b", how="gives up") == ["b"]
        assert kopf.apply("c", how="never") == []
        assert kopf.simulation.level("follow", "default", "b").status == "failed"
        assert kopf.read("c")["metadata"].get("finalizers") is None
        for name in ("a", "b", "c"):
            kopf.delete(name)
        assert kopf.simulation.objects(Shop) == []
        assert kopf.told() == []


def test_a_daemon_that_raises_begins_anew_after_the_delay_that_its_error_or_its_options_say(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops", backoff=20, initial_delay=1)
    async def follow(retry, status, patch, **_):
        told.append((retry, status.get("tries")))
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=10)
        patch.status["tries"] = retry
        if retry == 1:
            raise ValueError("wrong")
        raise kopf.PermanentError("no use")
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply() == []
        assert kopf.after(seconds=2) == [(0, None)]
        assert kopf.after(seconds=10) == [(1, None)]
        assert kopf.read()["status"] == {"tries": 1}
        assert kopf.after(seconds=18) == []
        assert kopf.after(seconds=3) == [(2, 1)]
        assert kopf.read()["status"] == {"tries": 2}
        assert kopf.after(hours=1) == []
        assert kopf.simulation.level("follow", "default", "a").status == "failed"


@pytest.mark.parametrize(
    ("options", "error", "retries"),
    [
        ("", 'kopf.PermanentError("no use")', [0]),
        ("retries=2", 'kopf.TemporaryError("not yet", delay=10)', [0, 1]),
        ("retries=2, backoff=10", 'ValueError("wrong")', [0, 1]),
        ("errors=kopf.ErrorsMode.PERMANENT", 'ValueError("wrong")', [0]),
        ("timeout=25", 'kopf.TemporaryError("not yet", delay=10)', [0, 1, 2]),
        ("timeout=25, backoff=10", 'ValueError("wrong")', [0, 1, 2]),
    ],
)
def test_a_daemon_that_gave_up_does_not_begin_again_when_its_object_changes(
    tmp_path: Path, options: str, error: str, retries: list[int]
) -> None:
    source = f"""
    @kopf.daemon("example.com", "v1", "shops", {options})
    async def follow(retry, **_):
        told.append(retry)
        raise {error}
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        told = kopf.apply(size=1)
        kopf.simulation.advance(timedelta(minutes=5))
        assert told + kopf.told() == retries
        level = kopf.simulation.level("follow", "default", "a")
        assert (level.status, error.split('"')[1] in level.reason) == ("failed", True)
        assert kopf.apply(size=2) == []
        assert kopf.after(minutes=5) == []
        assert kopf.simulation.level("follow", "default", "a").status == "failed"
        kopf.delete()
        assert kopf.simulation.objects(Shop) == []


def test_what_a_daemon_returns_is_written_and_it_does_not_begin_again_when_its_object_changes(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops")
    async def follow(spec, **_):
        told.append(spec["size"])
        return {"size": spec["size"]}
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply(size=1) == [1]
        assert kopf.read()["status"] == {"follow": {"size": 1}}
        assert kopf.apply(size=2) == []


def test_a_daemon_runs_while_its_filters_take_the_object(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops", labels={"a": "b"}, field="spec.size", value=1)
    async def follow(stopped, **_):
        told.append("begins")
        await stopped.wait()
        told.append("ends")
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply(size=1) == []
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=1) == ["begins"]
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=2) == ["ends"]
        kopf.simulation.run()
        assert kopf.read()["metadata"].get("finalizers") is None
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=1) == ["begins"]


def test_handlers_of_a_resource_with_daemons_wait_for_the_finalizer_too(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(body, **_):
        told.append(list(body.metadata["finalizers"]))

    @kopf.daemon("example.com", "v1", "shops")
    async def follow(stopped, **_):
        await stopped.wait()
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        assert kopf.apply() == [["levelog/shops"]]


def test_a_daemon_of_an_operator_whose_name_no_finalizer_can_have_is_refused(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops")
    async def follow(**_):
        pass
    """
    with pytest.raises(OperatorError, match="its finalizer would be"):
        load_kopf(tmp_path, source, name="s" * 64)


def test_an_object_stays_until_the_patch_of_its_daemon_that_was_refused_is_written(tmp_path: Path) -> None:
    source = """
    @kopf.daemon("example.com", "v1", "shops")
    async def follow(stopped, patch, **_):
        await stopped.wait()
        patch.status["phase"] = "cleaned up"
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        kopf.apply()
        kopf.simulation.refuse(503, target="shops.example.com/default/a", times=1)
        kopf.delete()
        assert kopf.read()["metadata"]["finalizers"] == ["levelog/shops"]
        kopf.simulation.advance(timedelta(minutes=1))
        assert kopf.simulation.objects(Shop) == []
