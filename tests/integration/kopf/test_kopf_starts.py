"""`kopf.on.resume` on levelog: once for each object at each start of the operator, which is a record like others."""

from pathlib import Path

import pytest

from rigs.kopffiles import kopf_run, shop

RESUMED = """
@kopf.on.resume("example.com", "v1", "shops")
def resumed(name, reason, old, new, diff, patch, **_):
    told.append((name, reason, old == new, diff))
    patch.status["phase"] = "resumed"
"""


def test_a_handler_is_called_at_each_start_for_what_was_there_before(tmp_path: Path) -> None:
    with kopf_run(tmp_path, RESUMED) as kopf:
        assert kopf.apply() == []
        assert kopf.start() == [("a", "resume", True, ())]
        assert kopf.read()["status"] == {"phase": "resumed"}
        assert kopf.apply("b") == []
        assert kopf.apply(size=2) == []
        assert sorted(kopf.start()) == [("a", "resume", True, ()), ("b", "resume", True, ())]
        kopf.delete()
        assert kopf.start() == [("b", "resume", True, ())]


@pytest.mark.parametrize("order", [("create", "resume"), ("resume", "create")])
def test_what_a_function_handles_as_new_it_does_not_handle_as_resumed(tmp_path: Path, order: tuple[str, str]) -> None:
    first, second = order
    source = f"""
    @kopf.on.{first}("example.com", "v1", "shops")
    @kopf.on.{second}("example.com", "v1", "shops")
    def both(reason, retry, **_):
        told.append((reason, retry))
        if reason == "create" and retry == 0:
            raise kopf.TemporaryError("later", delay=10)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [("create", 0)]
        assert kopf.start() == []
        assert kopf.after(seconds=10) == [("create", 1)]
        assert kopf.after(hours=1) == []
        assert kopf.start() == [("resume", 0)]


def test_what_is_new_to_the_operator_at_a_start_is_created_and_not_resumed(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("example.com", "v1", "shops")
    def made(name, reason, retry, **_):
        told.append(("made", name, reason))
        if name == "late" and retry == 0:
            raise kopf.TemporaryError("later", delay=10)

    @kopf.on.update("example.com", "v1", "shops")
    def changed(name, reason, **_):
        told.append(("changed", name, reason))

    @kopf.on.resume("example.com", "v1", "shops")
    def resumed(name, reason, **_):
        told.append(("resumed", name, reason))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.start(shop("old")) == [("made", "old", "create")]
        assert kopf.apply("next") == [("made", "next", "create")]
        assert sorted(kopf.start()) == [("resumed", "next", "resume"), ("resumed", "old", "resume")]
        assert kopf.apply("late") == [("made", "late", "create")]
        assert sorted(kopf.start()) == [("resumed", "next", "resume"), ("resumed", "old", "resume")]
        assert kopf.after(seconds=11) == [("made", "late", "create")]
        kopf.delete("next")
        assert sorted(kopf.start(shop("away"), shop("old", size=2))) == [
            ("changed", "old", "update"),
            ("made", "away", "create"),
            ("resumed", "late", "resume"),
            ("resumed", "old", "resume"),
        ]


def test_an_object_that_was_there_before_the_first_start_is_not_resumed_at_it(tmp_path: Path) -> None:
    with kopf_run(tmp_path, RESUMED) as kopf:
        assert kopf.start(shop("old")) == []
        assert kopf.start() == [("old", "resume", True, ())]


def test_a_function_that_handles_a_change_at_a_start_is_not_called_as_resumed_too(tmp_path: Path) -> None:
    source = """
    @kopf.on.resume("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def both(reason, **_):
        told.append(reason)
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == []
        assert kopf.start(shop("a", size=2)) == ["update"]
        assert kopf.start() == ["resume"]


def test_filters_and_errors_are_those_of_other_handlers(tmp_path: Path) -> None:
    source = """
    def is_big(value, **_):
        return (value or 0) > 1

    @kopf.on.resume("example.com", "v1", "shops", field="spec.size", value=is_big, retries=2)
    async def resumed(name, retry, **_):
        told.append((name, retry))
        raise kopf.TemporaryError("later", delay=5)
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply("a", size=1)
        kopf.apply("b", size=2)
        kopf.apply("c")
        assert kopf.start() == [("b", 0)]
        assert kopf.after(seconds=6) == [("b", 1)]
        assert kopf.simulation.level("resumed_resume", "default", "b").status == "failed"
        assert kopf.start() == [("b", 0)]


def test_an_object_that_is_being_deleted_is_resumed_where_the_decorator_says_so(tmp_path: Path) -> None:
    source = """
    @kopf.on.resume("example.com", "v1", "shops", deleted=True)
    def either(meta, **_):
        told.append(("either", meta.deletion_timestamp is not None))

    @kopf.on.resume("example.com", "v1", "shops")
    def living(**_):
        told.append("living")
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.apply(metadata={"finalizers": ["example.com/others"]})
        kopf.delete()
        assert kopf.start() == [("either", True)]
