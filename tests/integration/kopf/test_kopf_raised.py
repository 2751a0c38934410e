"""What a call of a Kopf handler has asked for before it raised: it is written, and the next call goes on from it."""

import importlib
import importlib.util
import logging
import sys
from datetime import timedelta
from itertools import product
from pathlib import Path
from textwrap import indent
from types import ModuleType

import pytest

from rigs.kopffiles import Shop, kopf_run


def test_the_patch_of_a_call_that_raises_is_written_and_the_next_call_is_given_it(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", backoff=20)
    def made(patch, retry, status, started, body, **_):
        told.append((retry, status.get("tries"), started))
        patch.status["tries"] = retry
        patch.metadata.labels["tries"] = str(retry)
        kopf.info(body, reason="Tried", message=str(retry))
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=10)
        if retry == 1:
            raise ValueError("wrong")
        return "done"
    """
    with kopf_run(tmp_path, source) as kopf:
        [(retry, tries, started)] = kopf.apply()
        assert (retry, tries) == (0, None)
        assert kopf.read()["status"] == {"tries": 0}
        level = kopf.simulation.level("made", "default", "a")
        assert (level.status, "TemporaryError: not yet" in level.reason) == ("drifting", True)
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=2) == [(1, 0, started)]
        assert kopf.read()["metadata"]["labels"] == {"tries": "1"}
        assert kopf.after(seconds=18) == []
        assert kopf.after(seconds=3) == [(2, 1, started)]
        assert kopf.read()["status"] == {"tries": 2, "made": "done"}
        assert sorted(event.note for event in kopf.simulation.events) == ["0", "1", "2"]
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"


GIVING_UP = [
    ("", 'kopf.PermanentError("no use")'),
    (", retries=1", 'kopf.TemporaryError("no use", delay=5)'),
    (", retries=1", 'ValueError("no use")'),
    (", errors=kopf.ErrorsMode.PERMANENT", 'ValueError("no use")'),
    (", timeout=5", 'kopf.TemporaryError("no use", delay=10)'),
]


@pytest.mark.parametrize(
    ("options", "error", "is_patched"), [*((*each, True) for each in GIVING_UP), (*GIVING_UP[0], False)]
)
def test_a_call_that_gives_up_has_its_patch_written_and_is_not_made_again_for_a_status(
    tmp_path: Path, options: str, error: str, is_patched: bool
) -> None:
    asked = 'patch.update({"status": {"size": spec["size"]}, "metadata": {"annotations": {"seen": "yes"}}})'
    source = f"""
    @kopf.on.create("example.com", "v1", "shops"{options})
    @kopf.on.update("example.com", "v1", "shops"{options})
    def made(patch, spec, retry, **_):
        told.append((spec["size"], retry))
        {asked if is_patched else "pass"}
        raise {error}
    """
    metadata = {"annotations": {"seen": "yes"}} if is_patched else {}
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [(1, 0)]
        for tick in range(10):
            kopf.simulation.patch_status(Shop, "a", {"ticks": tick}, namespace="default")
            assert kopf.after(minutes=1) == []
        assert kopf.read()["status"] == ({"size": 1} if is_patched else {}) | {"ticks": 9}
        assert ("annotations" in kopf.read()["metadata"]) is is_patched
        level = kopf.simulation.level("made", "default", "a")
        assert (level.status, "no use" in level.reason) == ("failed", True)
        assert kopf.apply(metadata=metadata, size=2) == [(2, 0)]
        assert kopf.apply(metadata={**metadata, "labels": {"a": "b"}}, size=2) == [(2, 0)]


def test_a_status_that_others_change_neither_resets_the_retries_nor_cuts_a_delay(tmp_path: Path) -> None:
    asked = "pass", "patch.status[f'by {name}'] = retry"
    errors = 'kopf.TemporaryError("not yet", delay=10)', 'ValueError("wrong")'
    names = [f"made{number}" for number in range(4)]
    source = "".join(
        f"""
    @kopf.on.create("example.com", "v1", "shops", retries=3, backoff=10)
    def {name}(patch, retry, status, **_):
        name = "{name}"
        told.append((name, retry, status.get("last")))
        {wish}
        raise {error}
    """
        for name, (wish, error) in zip(names, product(asked, errors), strict=True)
    )
    with kopf_run(tmp_path, source) as kopf:
        assert sorted(kopf.apply()) == [(name, 0, None) for name in names]
        seen = {}
        for second in range(2, 60, 2):
            kopf.simulation.advance(timedelta(seconds=2))
            seen[second] = sorted(kopf.told())
            kopf.simulation.patch_status(Shop, "a", {"last": second, f"new{second}": True}, namespace="default")
            kopf.simulation.run()
            assert kopf.told() == []
        told = {second: told for second, told in seen.items() if told}
        assert told == {10: [(name, 1, 8) for name in names], 20: [(name, 2, 18) for name in names]}
        assert {kopf.simulation.level(name, "default", "a").status for name in names} == {"failed"}


@pytest.mark.parametrize("error", ['ValueError("x" * 100_000)', "Untold()"])
@pytest.mark.parametrize(
    "around", ["def made", "async def made", "def outer(**_):\n    @kopf.subhandler(backoff=10)\n    def made"]
)
def test_an_error_of_any_text_is_an_error_that_the_function_is_called_again_after(
    tmp_path: Path, error: str, around: str
) -> None:
    body = indent(f"told.append(retry)\nif retry == 0:\n    raise {error}", " " * 8)
    source = f"""
class Untold(Exception):
    def __str__(self):
        raise LookupError("it has no text")

@kopf.on.create("example.com", "v1", "shops", backoff=10)
{around}(retry, **_):
{body}
"""
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [0]
        assert kopf.after(seconds=11) == [1]


def test_a_backoff_of_none_is_the_minute_that_kopf_waits(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", backoff=None)
    def made(retry, **_):
        told.append(retry)
        raise ValueError("wrong")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [0]
        assert kopf.after(seconds=59) == []
        assert kopf.after(seconds=2) == [1]


def test_retries_count_over_calls_with_a_patch_and_without(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops", retries=4, backoff=10)
    def made(patch, retry, **_):
        told.append(retry)
        if retry % 2 == 0:
            patch.status["tries"] = retry
        raise ValueError("wrong")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [0]
        assert kopf.after(hours=1) == [1, 2, 3]
        assert kopf.read()["status"] == {"tries": 2}
        assert kopf.simulation.level("made", "default", "a").status == "failed"


def test_what_a_handler_patches_itself_calls_it_no_sooner(tmp_path: Path) -> None:
    source = """
    def tries(patch, retry, name, id):
        told.append((id, retry))
        patch.status[f"by {id}"] = len(told)
        patch.metadata.annotations[id] = str(len(told))
        raise kopf.TemporaryError("not yet", delay=60)

    @kopf.on.create("example.com", "v1", "shops")
    def one(patch, retry, name, **_):
        tries(patch, retry, name, "one")

    @kopf.on.create("example.com", "v1", "shops")
    def two(patch, retry, name, **_):
        tries(patch, retry, name, "two")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert sorted(kopf.apply()) == [("one", 0), ("two", 0)]
        assert kopf.after(seconds=50) == []
        assert sorted(kopf.after(seconds=100)) == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]


def test_what_others_change_in_the_spec_calls_it_at_once_and_in_the_status_once_it_is_due(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(patch, retry, spec, status, **_):
        told.append((retry, spec["size"], status.get("address")))
        patch.status["phase"] = f"tried {retry} {spec['size']}"
        if "address" not in status:
            raise kopf.TemporaryError("no address", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [(0, 1, None)]
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=1) == []
        assert kopf.apply(metadata={"labels": {"a": "b"}}, size=2) == [(0, 2, None)]
        kopf.simulation.patch_status(Shop, "a", {"address": "there"}, namespace="default")
        kopf.simulation.run()
        assert kopf.told() == []
        assert kopf.after(seconds=11) == [(1, 2, "there")]
        assert kopf.read()["status"] == {"phase": "tried 1 2", "address": "there"}


def test_a_handler_that_is_kept_from_an_object_by_its_own_annotation_may_raise(tmp_path: Path) -> None:
    source = """
    @kopf.on.update("example.com", "v1", "shops", annotations={"never-again": kopf.ABSENT})
    def once(patch, spec, **_):
        told.append(spec["size"])
        patch.metadata.annotations["never-again"] = "yes"
        patch.spec["old"] = None
        if spec["size"] == 2:
            raise kopf.PermanentError("no use")
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1, old=1)
        assert kopf.apply(size=2, old=1) == [2]
        assert kopf.read()["spec"] == {"size": 2}  # None takes a field away
        assert kopf.apply(metadata={"annotations": {"never-again": "yes"}}, size=3) == []


@pytest.mark.parametrize("decorator", ["on.delete", "on.resume", "timer"])
def test_a_call_of_another_kind_that_raises_has_its_patch_written_and_goes_on(tmp_path: Path, decorator: str) -> None:
    source = f"""
    @kopf.{decorator}("example.com", "v1", "shops"{", interval=100" if decorator == "timer" else ""})
    def goes_on(patch, retry, status, **_):
        told.append((retry, status.get("tries")))
        patch.status["tries"] = retry
        if retry < 2:
            raise kopf.TemporaryError("not yet", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        begun = kopf.apply()
        if decorator != "timer":
            assert begun == []
            begun = kopf.delete() if decorator == "on.delete" else kopf.start()
        assert begun == [(0, None)]
        assert kopf.read()["status"] == {"tries": 0}
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=30) == [(1, 0), (2, 1)]
        assert (kopf.simulation.objects(Shop) == []) is (decorator == "on.delete")


@pytest.mark.parametrize(
    ("options", "retries", "written"),
    [("optional=True", 2, []), ("optional=True, retries=2", 1, []), ("retries=2", 1, [0, 1])],
)
def test_a_delete_handler_that_gives_up_or_holds_nothing_ends_all_the_same(
    tmp_path: Path, options: str, retries: int, written: list[int]
) -> None:
    source = f"""
    @kopf.on.delete("example.com", "v1", "shops", {options})
    def gone(patch, retry, **_):
        told.append(retry)
        patch.status["phase"] = retry
        if retry < 2:
            raise kopf.TemporaryError("not yet", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(size=1)
        assert kopf.delete() == [0]
        assert kopf.after(hours=1) == list(range(1, retries + 1))
        assert kopf.simulation.objects(Shop) == []
        assert [body["status"]["phase"] for body in kopf.writes() if "status" in body] == written


@pytest.mark.parametrize(("options", "error"), GIVING_UP)
def test_a_timer_that_gives_up_has_its_patch_written_and_is_not_called_again(
    tmp_path: Path, options: str, error: str
) -> None:
    source = f"""
    @kopf.timer("example.com", "v1", "shops", interval=60{options})
    def look(patch, **_):
        told.append("look")
        patch.status["phase"] = "broken"
        raise {error}
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == ["look"]
        kopf.simulation.advance(timedelta(hours=1))
        assert kopf.read()["status"] == {"phase": "broken"}
        kopf.apply(size=1)
        assert kopf.after(hours=1) == []
        assert kopf.simulation.level("look", "default", "a").status == "failed"


def test_errors_of_calls_that_left_something_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(patch, retry, **_):
        patch.status["tries"] = retry
        raise ValueError("very wrong") if retry == 0 else kopf.PermanentError("no use")
    """
    with kopf_run(tmp_path, source) as kopf, caplog.at_level(logging.INFO):
        kopf.apply()
        kopf.simulation.advance(timedelta(minutes=2))
    assert "ValueError: very wrong" in caplog.text
    assert "made gives up: no use" in caplog.text


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf itself where it is installed, else a module whose errors are made as Kopf 1.45 makes them."""
    if importlib.util.find_spec("kopf"):
        monkeypatch.setitem(sys.modules, "kopf", importlib.import_module("kopf"))
        return
    module = ModuleType("kopf")

    class TemporaryError(Exception):
        def __init__(self, message: str | None = None, delay: float | None = 60) -> None:
            super().__init__(message)
            self.delay = delay

    vars(module).update(TemporaryError=TemporaryError, PermanentError=type("PermanentError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "kopf", module)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("place", ["handler", "inner"])
def test_an_error_of_an_installed_kopf_is_what_it_is_there(tmp_path: Path, place: str) -> None:
    called = "pass" if place == "inner" else "work(spec, retry)"
    inner = """
        @kopf.subhandler(id="inner")
        def inner(spec, retry, **_):
            work(spec, retry)
    """
    source = f"""
    import sys

    installed = sys.modules["kopf"]

    def work(spec, retry):
        told.append((spec["size"], retry))
        if spec["size"] == 1:
            raise installed.PermanentError("no use")
        if retry == 0:
            raise installed.TemporaryError("not yet", delay=10)

    @kopf.on.create("example.com", "v1", "shops", backoff=3000)
    @kopf.on.update("example.com", "v1", "shops", backoff=3000)
    def made(spec, retry, **_):
        {called}
        {inner if place == "inner" else ""}
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [(1, 0)]
        assert kopf.after(hours=2) == []
        assert kopf.apply(size=2) == [(2, 0)]
        assert kopf.after(seconds=9) == []
        assert kopf.after(seconds=3) == [(2, 1)]


@pytest.mark.parametrize(
    "error", ['kopf.TemporaryError("never", delay=10**12)', 'levelog.Retry("at once", delay="1 s")']
)
def test_no_delay_is_too_long_or_too_odd(tmp_path: Path, error: str) -> None:
    source = f"""
    import levelog

    @kopf.on.create("example.com", "v1", "shops", retries=2)
    def made(retry, **_):
        told.append(retry)
        raise {error}
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply()[:1] == [0]
        kopf.simulation.advance(timedelta(days=367))
        level = kopf.simulation.level("made", "default", "a")
        assert (level.status, "has exceeded 2 retries" in level.reason) == ("failed", True)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_result_that_cannot_be_written_is_an_error_of_the_handler(tmp_path: Path, kind: str) -> None:
    source = f"""
    @kopf.on.create("example.com", "v1", "shops", errors=kopf.ErrorsMode.IGNORED)
    {kind} made(patch, retry, **_):
        told.append(retry)
        patch.status["phase"] = "made"
        return object()
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [0]
        assert kopf.after(minutes=10) == []
        assert kopf.read()["status"] == {"phase": "made"}
        assert kopf.simulation.level("made", "default", "a").status == "in_sync"
