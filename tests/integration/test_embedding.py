"""Operators in a program that is not levelog's: it keeps its event loop, its signals and its log."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from levelog.compat import kopf
from levelog.embedding import run
from levelog_base.errors import ConfigurationError, OperatorError
from levelog_cli.loading import load_operators
from levelog_sandbox import Sandbox
from rigs.levelog import WEBS_FILE, sandbox_of_shop
from rigs.ports import is_listening
from rigs.processes import Process
from rigs.waiting import until

PROGRAM = """
import asyncio
import sys
{imports}


@kopf.on.create("example.com", "v1", "webs")
def made(name, **_):
    print("made", name, flush=True)


if __name__ == "__main__":
    {runs}
"""
IMPORTS = "from levelog.compat import kopf"
RUNS = {
    "run": (IMPORTS, "kopf.run(standalone=True, namespace='default', data_dir='data')"),
    "operator": (IMPORTS, "asyncio.run(kopf.operator(clusterwide=True, data_dir='data'))"),
    "cli": (f"{IMPORTS}\nimport levelog.compat.kopf.cli", "kopf.cli.main(['run', __file__, '--data-dir', 'data'])"),
}


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with sandbox_of_shop() as started:
        yield started


async def test_an_operator_runs_as_a_task_until_it_is_cancelled(sandbox: Sandbox, tmp_path: Path) -> None:
    [op] = load_operators([WEBS_FILE])
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)], logging.getLogger().handlers[:]
    data = tmp_path / "data"
    for count in (3, 5):  # a program may stop and start it
        sandbox.user.patch("webs.example.com", "shop", {"spec": {"replicas": count}})
        kubeconfig = str(sandbox.kubeconfig(tmp_path / "kubeconfig"))
        task = asyncio.create_task(run(op, kubeconfig=kubeconfig, data_dir=str(data), namespace="default"))
        await _until_or_failed(task, partial(_has_pods, sandbox, count))
        nats = _port(data)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_listening(nats)
    assert handlers == (
        [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        logging.getLogger().handlers[:],
    )


async def test_what_ends_it_is_raised_as_one_error(tmp_path: Path) -> None:
    [op] = load_operators([WEBS_FILE])
    with pytest.raises(ConfigurationError, match="there is no setting 'folder'"):
        await run(op, folder=tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"a setting cannot be used: Expected `int`, got `str` - at `\$\.threads`"
    ):
        await run(op, threads="many")
    with pytest.raises(ConfigurationError, match=r"none\.yaml"):
        await run(op, kubeconfig=str(tmp_path / "none.yaml"), data_dir=tmp_path / "data")


@pytest.mark.parametrize("how", ["run", *(pytest.param(how, marks=pytest.mark.long) for how in ("cli", "operator"))])
async def test_a_kopf_program_that_runs_itself_runs_here(sandbox: Sandbox, tmp_path: Path, how: str) -> None:
    imports, runs = RUNS[how]
    file = tmp_path / "teams.py"
    file.write_text(PROGRAM.format(imports=imports, runs=runs))
    env = {"KUBECONFIG": str(sandbox.kubeconfig(tmp_path / "kubeconfig"))}
    with Process([sys.executable, file], tmp_path / "log", env=env, folder=tmp_path) as process:

        async def is_handled() -> bool:
            process.check()
            return "made shop" in process.log.read_text()

        await until(is_handled, "what the handler prints")


async def test_the_flag_that_kopf_takes_stops_it(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = _module(monkeypatch, "return kopf.operator(**options)")
    flag = asyncio.Event()
    kubeconfig = str(sandbox.kubeconfig(tmp_path / "kubeconfig"))
    work: Coroutine[Any, Any, None] = vars(module)["begin"](
        stop_flag=flag,
        kubeconfig=kubeconfig,
        data_dir=tmp_path / "data",
        liveness_endpoint="http://127.0.0.1:0/healthz",
    )
    task = asyncio.create_task(work)
    said = list[str]()

    def is_said() -> bool:
        said.append(capsys.readouterr().out)  # a part of a line, at times
        return "made shop" in "".join(said)

    await _until_or_failed(task, is_said)
    flag.set()
    await task


def test_options_of_kopf_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperatorError, match=r"no handlers of levelog\.compat\.kopf"):
        kopf.run()
    with pytest.raises(OperatorError, match=r"kopf\.run: ready_flag= means nothing to levelog"):
        vars(_module(monkeypatch, "kopf.run(ready_flag=None)"))["begin"]()


def _has_pods(sandbox: Sandbox, count: int) -> bool:
    return len(sandbox.user.list("pods")) == count


def _port(data: Path) -> int:
    """Where the embedded NATS listens."""
    return int((data / "nats.url").read_text().rpartition(":")[2])


def _module(monkeypatch: pytest.MonkeyPatch, begins: str) -> ModuleType:
    """A module of a program, with a handler and a function that begins what is embedded."""
    module = ModuleType("embedded_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = f"{PROGRAM.format(imports=IMPORTS, runs='pass')}\ndef begin(**options):\n    {begins}\n"
    exec(compile(source, "embedded.py", "exec"), vars(module))
    return module


async def _until_or_failed(task: "asyncio.Task[None]", is_done: Any) -> None:
    async def is_seen() -> bool:
        if task.done():
            await task
        return bool(is_done())

    await until(is_seen, "what the operator writes")
