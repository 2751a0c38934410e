"""Whatever a user's function does wrong: its level says so, others go on, and mending it is enough."""

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog import Index, Intent, Level, Operator, Resource, Struct, apply
from levelog.testing import Simulation
from rigs.kinds import ConfigMap, manifest
from rigs.simulated import run_with, simulated

SHORT = timedelta(milliseconds=100)
OF_A_THREAD = timedelta(seconds=1)
"""In which one starts and returns on a busy machine, too."""
release = threading.Event()
"""Ends what hangs in a thread."""


class Spec(Struct):
    does: str = ""


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


def web(name: str, does: str = "") -> dict[str, Any]:
    return manifest("Web", name, does=does)


def config(web: Web) -> Intent:
    return apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}})


def misbehave(does: str) -> Any:
    """What a view or an index function may do."""
    match does:
        case "raises":
            raise KeyError("image")
        case "hangs":
            while True:
                pass
        case "leaves":
            raise SystemExit(3)
        case "reads a file":
            return Path(__file__).read_text()
        case "unserialisable":
            return object()
        case "no text":
            raise ValueError("\0 \udc80")
        case _:
            return ""


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    release.clear()
    yield
    release.set()


def operator() -> Operator:
    op = Operator("shop")

    @op.index
    def there(config: ConfigMap) -> Iterator[tuple[str, str]]:
        yield config.metadata.name, "there"

    @op.view(timeout=SHORT)
    def view(web: Web, there: Index[str, str]) -> Level[dict[str, Any]]:
        if web.spec.does == "view gives no level":
            return 3  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
        value = misbehave(web.spec.does.removeprefix("view ")) if web.spec.does.startswith("view ") else ""
        name = web.metadata.name
        return Level({name: value}, {name: ""} if there[name] else {})

    @op.reconcile(view, timeout=SHORT)
    async def converge(web: Web, level: Level[dict[str, Any]]) -> Any:
        wanted: Any = [config(web)]
        match web.spec.does:
            case "reconcile raises":
                raise KeyError("image")
            case "reconcile hangs":
                await asyncio.Event().wait()
            case "reconcile gives a manifest":
                wanted = [{"kind": "ConfigMap"}]
            case "reconcile targets nothing known":
                wanted = [apply({"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "a"}})]
            case "reconcile asks twice":
                wanted *= 2
            case _:
                pass
        return wanted

    return op


def threaded() -> Operator:
    op = operator()
    op.reconcilers.clear()

    def hangs(web: Web, level: Level[dict[str, Any]]) -> Iterator[Intent]:
        if web.spec.does == "reconcile hangs in a thread":
            release.wait()
        yield config(web)

    [view] = [handler.function for handler in op.views.values()]
    op.reconcile(view, timeout=OF_A_THREAD)(hangs)
    return op


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("view raises", "view shop/view: KeyError: 'image'"),
        ("view hangs", "view shop/view: took longer than 0.1 s and was ended"),
        ("view leaves", "view shop/view: SystemExit: 3"),
        ("view reads a file", f"view shop/view: open '{__file__}': it computes from what it is given alone; "),
        ("view unserialisable", "view shop/view: desired has no JSON form (Encoding objects of type object is "),
        ("view no text", "view shop/view: ValueError: \\0 \\udc80"),
        ("view gives no level", "view shop/view: returned int, not a Level"),
        ("reconcile raises", "reconcile function converge: KeyError: 'image'"),
        ("reconcile hangs", "reconcile function converge: took longer than 0.1 s and was cancelled"),
        ("reconcile gives a manifest", "reconcile function converge: yielded a mapping, which is not an intent: wrap"),
        ("reconcile targets nothing known", "reconcile function converge: apply of Unknown a: no Resource class says"),
        (
            "reconcile asks twice",
            "reconcile function converge: view shop/view asks twice to apply configmaps/default/a",
        ),
        ("reconcile hangs in a thread", "reconcile function hangs: did not return within 1 s; a thread cannot be "),
    ],
)
def test_a_fault_is_the_reason_of_its_level_and_ends_with_its_cause(does: str, reason: str) -> None:
    with simulated(threaded() if "thread" in does else operator(), web("a", does), web("b")) as simulation:
        faulty = simulation.level("view", "default", "a")
        assert (faulty.status, faulty.reason[: len(reason)]) == ("failed", reason)
        assert simulation.level("view", "default", "b").status == "in_sync"
        release.set()
        simulation.apply(web("a"))
        for _ in range(100):  # a thread that was left behind takes its time to return
            simulation.run()
            if simulation.level("view", "default", "a").status == "in_sync":
                break
            simulation.advance(timedelta(seconds=1))
        assert simulation.level("view", "default", "a").status == "in_sync"


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("raises", "KeyError: 'image'"),
        ("hangs", "took longer than 0.1 s and was ended"),
        ("reads a file", f"open '{__file__}': it computes from what it is given alone; "),
        ("unserialisable", "TypeError: Encoding objects of type object is unsupported"),
    ],
)
def test_an_index_function_that_fails_is_told_by_who_reads_it_until_the_object_changes(
    does: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_processors.fold.entries.VIEW_TIME", SHORT)
    op = Operator("shop")

    @op.index
    def names(web: Web) -> Iterator[tuple[str, Any]]:
        yield "all", misbehave(web.spec.does)

    @op.view
    def view(web: Web, names: Index[str, Any]) -> Level[int]:
        return Level(len(names["all"]), 2)

    with simulated(op, web("a", does), web("b")) as simulation:
        level = simulation.level("view", "default", "b")
        assert level.status == "drifting"
        assert level.reason.startswith(f"index shop/names leaves out webs.example.com/default/a: {reason}")
        run_with(simulation, web("a"))
        assert simulation.level("view", "default", "b").status == "in_sync"
        assert simulation.level("view", "default", "b").reason == ""
        run_with(simulation, web("a", does))
        level = simulation.level("view", "default", "b")
        assert level.status == "blocked"
        assert level.reason.startswith(f"index shop/names fails for webs.example.com/default/a: {reason}")


def test_the_log_names_function_object_error_and_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "levelog.calls.faults")
    with Simulation(operator()) as simulation:
        run_with(simulation, web("a", "view raises"))
    warning, *_ = [record for record in caplog.records if record.levelno == logging.WARNING]
    line = misbehave.__code__.co_firstlineno + 4
    assert warning.getMessage() == (
        f"view shop/view failed for webs.example.com/default/a: KeyError: 'image' (test_handler_faults.py line {line})"
    )
    assert vars(warning)["object"] == "webs.example.com/default/a"
    [debug] = [record for record in caplog.records if "Traceback" in record.getMessage()]
    assert debug.levelno == logging.DEBUG
    assert re.search(r"line \d+, in misbehave", debug.getMessage())


def test_a_function_logs_with_the_object_that_it_is_called_for(caplog: pytest.LogCaptureFixture) -> None:
    op = Operator("shop")

    @op.view
    def view(web: Web, logger: logging.Logger) -> Level[int]:
        logger.warning("looked at")
        return Level(1, 1)

    with Simulation(op) as simulation:
        run_with(simulation, web("a"))
    [told] = [record for record in caplog.records if record.getMessage() == "looked at"]
    assert (told.name, vars(told)["object"]) == ("levelog.operator.shop.view", "webs.example.com/default/a")
