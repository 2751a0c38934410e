"""`kopf.on.event` on levelog: called for each record of an object."""

from pathlib import Path

import pytest

from rigs.kopffiles import kopf_run, shop
from rigs.simulated import run_with

SEEN = """
@kopf.on.event("example.com", "v1", "shops", labels={"a": kopf.ABSENT})
def seen(event, type, spec, name, memo, **_):
    memo.count = memo.get("count", 0) + 1
    told.append((type, event["type"] == type, event["object"]["kind"], name, spec.get("size"), memo.count))
"""


def test_a_handler_is_called_for_each_record_of_what_its_filters_take(tmp_path: Path) -> None:
    with kopf_run(tmp_path, SEEN) as kopf:
        run_with(kopf.simulation, shop(size=1), shop(size=2))
        assert kopf.told() == [("MODIFIED", True, "Shop", "a", 1, 1), ("MODIFIED", True, "Shop", "a", 2, 2)]
        assert kopf.apply("b", metadata={"labels": {"a": ""}}, size=1) == []
        assert kopf.delete() == [("DELETED", True, "Shop", "a", 2, 3)]
        assert kopf.apply(size=1) == [("MODIFIED", True, "Shop", "a", 1, 1)]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_filter_is_told_of_the_event_too(tmp_path: Path, kind: str) -> None:
    source = f"""
    def is_end(event, type, **_):
        return event["type"] == type == "DELETED"

    @kopf.on.event("example.com", "v1", "shops", when=kopf.not_(is_end), labels={{"a": kopf.ABSENT}})
    {kind} seen(type, **_):
        told.append(type)

    @kopf.on.event("example.com", "v1", "shops", when=is_end)
    {kind} gone(type, **_):
        told.append(type)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == ["MODIFIED"]
        assert kopf.delete() == ["DELETED"]
        assert kopf.apply(metadata={"labels": {"a": ""}}) == []


def test_a_filter_that_fails_is_logged_and_holds_up_no_later_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    @kopf.on.event("example.com", "v1", "shops", when=lambda spec, **_: spec["size"] > 0)
    def seen(spec, **_):
        told.append(spec["size"])
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == []  # it has no size
        assert kopf.apply(size=1) == [1]
    assert "KeyError: 'size'" in caplog.text


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_it_raises_is_logged_and_what_it_returns_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    source = f"""
    @kopf.on.event("example.com", "v1", "shops")
    {kind} seen(spec, **kwargs):
        told.append(spec["size"])
        if spec["size"] == 1:
            raise ValueError("too small")
        kwargs["patch"].status["seen"] = True
        return 1
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [1]
        assert kopf.apply(size=2) == [2]
        assert "status" not in kopf.read()
    messages = [each.message for each in caplog.records]
    assert "seen failed, which is ignored: too small" in messages
    assert "seen: what a handler of on.event returns, patches or posts is not written" in messages
