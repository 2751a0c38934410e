"""How a command ends: the sentence, the status, and when there is a traceback."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from levelog_base.errors import ConfigurationError, LevelogError, OperatorError, Unavailable
from levelog_cli.running import execute
from levelog_cli.settings import Settings


def ends(command: Callable[[], Coroutine[Any, Any, None]], settings: Settings | None = None) -> object:
    with pytest.raises(SystemExit) as ended:
        execute(settings or Settings(), command)
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "status"),
    [(LevelogError("x"), 1), (Unavailable("x"), 1), (ConfigurationError("x"), 2), (OperatorError("x"), 2)],
)
def test_an_error_ends_in_its_sentence_and_status(
    error: LevelogError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def command() -> None:
        raise error

    assert ends(command) == status
    assert capsys.readouterr().err == "levelog: x\n"


def test_a_sentence_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def command() -> None:
        raise Unavailable("the server said:\n  no\n")

    ends(command)
    assert capsys.readouterr().err == "levelog: the server said: no\n"


def test_the_task_that_failed_first_is_the_one_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Unavailable("what followed")

    async def fails() -> None:
        raise ConfigurationError("the cause")

    async def fails_within() -> None:
        async with asyncio.TaskGroup() as inner:
            inner.create_task(fails_when_cancelled())
            inner.create_task(fails())

    async def command() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(fails_when_cancelled())
            outer.create_task(fails_within())

    assert ends(command) == 2
    assert capsys.readouterr().err == "levelog: the cause\n"


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    async def command() -> None:
        raise Unavailable("x")

    ends(command, Settings(debug=True))
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith("levelog: x\n")


def test_a_defect_is_not_made_to_look_like_a_mistake_of_the_user() -> None:
    async def defect() -> None:
        raise LookupError("a bug")

    async def command() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(defect())

    with pytest.raises(ExceptionGroup) as raised:
        execute(Settings(), command)
    assert raised.group_contains(LookupError)


def test_a_command_that_ends_well_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    async def command() -> None:
        await asyncio.sleep(0)

    execute(Settings(), command)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_signal_ends_a_command_with_one_line_and_status_0_at_any_time(
    number: signal.Signals, is_begun: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        signal.raise_signal(number)
        await asyncio.Event().wait()

    def command() -> Coroutine[Any, Any, None]:
        if not is_begun:
            signal.raise_signal(number)  # as it comes while modules are imported
        return work()

    before = signal.getsignal(number)
    try:
        execute(Settings(), command)
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"stops, as {number.name} asks")
    assert signal.getsignal(number) is before
