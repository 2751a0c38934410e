"""Handlers inside of handlers of a Kopf file: each is called until it has succeeded, or given up."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import HandlerFault
from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.handlererrors import TryLimits
from levelog.compat.kopf.subhandlers import Calls, InnerHandler
from rigs.kopffiles import kopf_run
from rigs.waiting import until

PARTS = """
@kopf.on.create("example.com", "v1", "shops")
{kind} made(spec, **_):
    told.append("made")
    for item in spec["items"]:

        @kopf.subhandler(id=item, param=item)
        {kind} part(param, retry, patch, name, **_):
            told.append((name, param, retry))
            if param == "late" and retry < 2:
                raise kopf.TemporaryError("not yet", delay=10)
            if param == "never":
                raise kopf.PermanentError("no use")
            patch.metadata.labels[param] = "done"
            return {{"n": len(param)}}

    return "whole"
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_each_is_called_until_it_has_ended_and_the_rest_are_left_alone(tmp_path: Path, kind: str) -> None:
    with kopf_run(tmp_path, PARTS.format(kind=kind)) as kopf:
        first: list[Any] = ["made", ("a", "one", 0), ("a", "late", 0), ("a", "never", 0)]
        assert kopf.apply(items=["one", "late", "never"]) == first
        assert kopf.read()["status"] == {"made/one": {"n": 3}}  # what has ended is written, as in Kopf
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=12) == ["made", ("a", "late", 1), "made", ("a", "late", 2)]
        found = kopf.read()
        assert found["status"] == {"made": "whole", "made/one": {"n": 3}, "made/late": {"n": 4}}
        assert not found["metadata"].get("annotations"), "no note is left on the object"
        assert found["metadata"]["labels"] == {"one": "done", "late": "done"}
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"
        assert len(kopf.writes()) == 4


def test_they_are_called_for_what_their_filters_and_limits_say(tmp_path: Path) -> None:
    source = """
    def fails(retry, param, **_):
        told.append((param, retry))
        raise ValueError("wrong")

    @kopf.on.update("example.com", "v1", "shops", retries=1)
    async def changed(**_):
        kopf.register(fails, id="twice", param="twice", retries=2, backoff=5)
        kopf.register(fails, id="once", param="once", errors=kopf.ErrorsMode.PERMANENT)
        kopf.register(fails, id="odd", param="odd", labels={"a": "b"})

        @kopf.subhandler(field="spec.size")
        def sized(new, **_):
            told.append(("sized", new["spec"]["size"]))

        @kopf.on.subhandler(field="spec.size", old=1, new=lambda value, **_: value > 2)
        def grown(**_):
            told.append("grown")
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1)
        assert sorted(kopf.apply(size=2), key=str) == [("once", 0), ("sized", 2), ("twice", 0)]
        assert kopf.after(minutes=1) == [("twice", 1)]
        kopf.apply(size=1)
        kopf.told()
        kopf.simulation.advance(timedelta(minutes=1))
        kopf.told()
        assert "grown" in kopf.apply(size=3)


def test_an_async_handler_may_have_them_called_at_once_and_they_have_their_own(tmp_path: Path) -> None:
    source = """
    async def leaf(**_):
        told.append("leaf")
        return 1

    def branch(**_):
        told.append("branch")
        kopf.register(leaf)

    @kopf.on.create("example.com", "v1", "shops")
    async def root(**_):
        await kopf.execute(fns=[branch])
        told.append("root goes on")
        await kopf.execute(fns={"other": leaf})
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == ["branch", "leaf", "root goes on", "leaf"]
        assert kopf.read()["status"] == {"root/branch/leaf": 1, "root/other": 1}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_one_that_wants_to_end_its_process_fails_alone(tmp_path: Path, kind: str) -> None:
    source = f"""
    import sys

    @kopf.on.create("example.com", "v1", "shops")
    {kind} made(name, **_):
        @kopf.subhandler(retries=2, backoff=10)
        {kind} leave(retry, **_):
            told.append(("leave", retry))
            sys.exit(3)

        @kopf.subhandler()
        {kind} stay(**_):
            told.append("stay")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [("leave", 0), "stay"]
        assert "called sys.exit(3)" in kopf.simulation.level("made", "default", "a").reason
        assert kopf.after(minutes=1) == [("leave", 1)]
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"


def test_what_cannot_be_is_refused_when_it_is_called(tmp_path: Path) -> None:
    source = """
    def one(**_):
        pass

    @kopf.on.create("example.com", "v1", "shops", errors=kopf.ErrorsMode.PERMANENT)
    async def made(spec, **_):
        if spec["how"] == "twice":
            kopf.register(one)
            kopf.register(one)
        else:
            await kopf.execute(**{spec["how"]: [one]})
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply("a", how="twice")
        assert "made/one: is registered twice" in kopf.simulation.level("made", "default", "a").reason
        for option in ("handlers", "registry", "lifecycle", "cause"):
            kopf.apply(option, how=option)
            reason = kopf.simulation.level("made", "default", option).reason
            assert f"{option}= is of Kopf's own machinery" in reason


def test_the_patch_of_one_that_raises_is_written_and_it_is_called_on_its_own(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", retries=1)
    def made(**_):
        @kopf.subhandler(id="part")
        def part(patch, retry, status, **_):
            told.append((retry, status.get("tries")))
            patch.status["tries"] = retry
            if retry < 2:
                raise kopf.TemporaryError("not yet", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [(0, None)]
        assert kopf.read()["status"] == {"tries": 0}
        assert kopf.after(seconds=21) == [(1, 0), (2, 1)]
        assert kopf.read()["status"] == {"tries": 2}
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"


async def test_a_plain_one_that_outlasts_the_time_of_the_call_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelog.calls.caller.CANCELLATION_TIME", timedelta(milliseconds=50))
    release = threading.Event()

    def waits(**_: Any) -> None:
        release.wait()

    calls = Calls("made/", {}, {}, {"metadata": {}})
    calls.add(
        InnerHandler(
            id="made/waits",
            function=waits,
            limits=TryLimits(),
            backoff=timedelta(seconds=1),
            param=None,
            filters=Filters(),
            is_taken=lambda _: True,
        )
    )
    caller = FunctionCaller()
    try:
        with pytest.raises(HandlerFault, match="goes on although it was cancelled"):
            await caller.run("a", calls.run, timedelta(milliseconds=50), is_async=True)
        assert caller.still_runs("a")
    finally:
        release.set()
    await until(lambda: not caller.still_runs("a"), "the inner handler to return")
