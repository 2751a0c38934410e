"""What Kopf's documentation says of handlers, and is no subject of a test beside this one: docs/kopf-features.md."""

import asyncio
import inspect
import logging
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from levelog import Operator
from levelog.compat.kopf.given import memos
from levelog_base.errors import HookFailed
from levelog_processors.hooks import Lifecycle
from levelog_processors.program import Program
from rigs.kopffiles import kopf_run, load_kopf


def test_a_sharp_timer_keeps_its_grid_and_an_idle_one_waits_for_calm(tmp_path: Path) -> None:
    source = """
    @kopf.timer("example.com", "v1", "shops", interval=60, sharp=True)
    def sharp(retry, **_):
        told.append(("sharp", retry))
        if retry < 1:
            raise kopf.TemporaryError("not now", delay=20)

    @kopf.timer("example.com", "v1", "shops", interval=600, idle=100)
    def calm(spec, **_):
        told.append(("calm", spec["size"]))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [("sharp", 0)]
        assert kopf.after(seconds=59) == [("sharp", 1)]
        kopf.apply(size=2)
        assert kopf.after(seconds=2) == [("sharp", 0)]
        kopf.simulation.advance(timedelta(seconds=90))
        assert ("calm", 2) not in kopf.told()
        kopf.simulation.advance(timedelta(seconds=9))
        assert ("calm", 2) in kopf.told()


def test_what_fits_for_the_first_time_is_new_to_a_handler(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", labels={"a": "b"})
    @kopf.on.update("example.com", "v1", "shops", labels={"a": "b"})
    def seen(reason, **_):
        told.append(reason)

    @kopf.on.create("example.com", "v1", "shops")
    def known(**_):
        told.append("known")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == ["known"]
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=1) == ["create"]
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=2) == ["update"]


def test_memos_of_objects_begin_with_that_of_the_operator_and_are_their_own(tmp_path: Path) -> None:
    source = """
    @kopf.on.startup()
    def begin(memo, **_):
        memo.shared = ["one"]
        memo.count = 0

    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def counted(memo, name, **_):
        memo.count += 1
        memo["shared"].append(name)
        told.append((memo.count, list(memo.shared)))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply("a", size=1) == [(1, ["one", "a"])]
        assert kopf.apply("b", size=1) == [(1, ["one", "a", "b"])]
        assert kopf.apply("a", size=2) == [(2, ["one", "a", "b", "a"])]
        kopf.delete("b")
        assert kopf.apply("b", size=1) == [(1, ["one", "a", "b", "a", "b"])]


def test_memos_are_kept_of_so_many_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memos, "MOST_MEMOS", 2)
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def counted(memo, name, **_):
        memo.count = memo.get("count", 0) + 1
        told.append((name, memo.count))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply("a", size=1) == [("a", 1)]
        assert kopf.apply("b", size=1) == [("b", 1)]
        assert kopf.apply("a", size=2) == [("a", 2)]
        assert kopf.apply("c", size=1) == [("c", 1)]  # of b nothing is known any more
        assert kopf.apply("a", size=3) == [("a", 3)]
        assert kopf.apply("b", size=2) == [("b", 1)]


def test_what_is_logged_goes_to_the_log_and_is_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", errors=kopf.ErrorsMode.PERMANENT)
    def made(logger, **_):
        logger.error("something is wrong")
        raise ValueError("very wrong")
    """
    with kopf_run(tmp_path, source) as kopf, caplog.at_level(logging.INFO):
        kopf.apply()
        assert kopf.simulation.events == []
        level = kopf.simulation.level("made", "default", "a")
        assert (level.status, "very wrong" in level.reason) == ("failed", True)
    [record] = [each for each in caplog.records if each.message == "something is wrong"]
    assert vars(record)["object"] == "shops.example.com/default/a"


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize(
    ("options", "error", "calls"),
    [
        ("", 'kopf.TemporaryError("not yet", delay=0)', 3),
        ("", 'kopf.PermanentError("no database")', 1),
        (", backoff=0.01", 'ValueError("wrong")', 3),
        (", retries=2, backoff=0.01", 'ValueError("wrong")', 2),
        (", timeout=5", 'ValueError("wrong")', 1),
        (", errors=kopf.ErrorsMode.PERMANENT", 'ValueError("wrong")', 1),
        (", errors=kopf.ErrorsMode.IGNORED", 'ValueError("wrong")', 0),
    ],
)
def test_a_start_up_handler_is_called_until_it_succeeds_or_its_limits_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, options: str, error: str, calls: int
) -> None:
    source = f"""
    @kopf.on.startup(id="begin"{options})
    {kind} begin(retry, memo, **_):
        told.append(retry)
        if retry < 2:
            raise {error}

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        told.append("made")
    """
    fails = calls in (1, 2)
    with pytest.raises(HookFailed) if fails else nullcontext(), kopf_run(tmp_path, source) as kopf:
        assert kopf.told() == ([0, 1, 2] if calls else [0])  # 0: its first error is ignored
        assert kopf.apply() == ["made"]
    assert caplog.text.count("is called again in") == max(calls - 1, 0)
    assert "a task of" not in caplog.text


def begin_and_end(operator: Operator) -> None:
    """Run its hooks in a loop of this thread, out of which a SystemExit would get."""

    async def run() -> None:
        async with Lifecycle(Program([operator]), cast("Any", None)):
            pass

    asyncio.run(run())


def told_of(operator: Operator) -> list[Any]:
    found: list[Any] = inspect.unwrap(operator.on.registered[0].function).__globals__["told"]
    return found


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_hook_that_exits_fails_as_one_that_raises_and_clean_ups_still_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    source = f"""
    import sys

    @kopf.on.startup()
    {kind} begin(**_):
        sys.exit(3)

    @kopf.on.cleanup()
    {kind} leave(**_):
        sys.exit(3)

    @kopf.on.cleanup()
    {kind} close(**_):
        told.append("closed")

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        pass
    """
    operator = load_kopf(tmp_path, source)
    with pytest.raises(HookFailed, match=r"startup hook begin of operator shops failed: called sys\.exit\(3\)"):
        begin_and_end(operator)
    assert told_of(operator) == ["closed"]
    assert "cleanup hook leave failed for shops: called sys.exit(3)" in caplog.text


def test_a_plain_start_up_handler_that_hangs_is_told_as_what_cannot_be_ended(tmp_path: Path) -> None:
    source = """
    import threading

    @kopf.on.startup(timeout=0.05)
    def begin(**_):
        told.append(threading.Event())
        told[0].wait()

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        pass
    """
    operator = load_kopf(tmp_path, source)
    with pytest.raises(HookFailed, match=r"did not return within 0\.05 s; a thread cannot be ended"):
        begin_and_end(operator)
    [release] = told_of(operator)
    release.set()


@pytest.mark.parametrize("name", ["label_selectors", "field_selectors", "shard_selectors"])
def test_selectors_in_the_settings_end_the_process_before_anything_is_handled(tmp_path: Path, name: str) -> None:
    source = f"""
    @kopf.on.startup()
    async def begin(settings, **_):
        settings.watching.{name}["shops"] = "a=b"

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        pass
    """
    said = rf"settings\.watching\.{name}\['shops'\]: .* filter in the decorators"
    with pytest.raises(HookFailed, match=said), kopf_run(tmp_path, source):
        raise AssertionError("it has begun")


def test_async_functions_run_in_the_loop_and_plain_ones_in_threads(tmp_path: Path) -> None:
    source = """
    import asyncio
    import threading

    @kopf.on.create("example.com", "v1", "shops")
    async def one(**_):
        told.append(("one", asyncio.get_running_loop().is_running(), threading.current_thread().name))

    @kopf.on.create("example.com", "v1", "shops")
    def two(**_):
        told.append(("two", asyncio._get_running_loop() is None, threading.current_thread().name))
    """
    with kopf_run(tmp_path, source) as kopf:
        one, two = sorted(kopf.apply())
        assert (one[:2], two[:2]) == (("one", True), ("two", True))
        assert one[2] != two[2] == "levelog function"
