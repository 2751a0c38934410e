import asyncio

import pytest

from levelog import LevelogError
from levelog_testing.loopthread import LoopThread


def fail() -> None:
    raise ZeroDivisionError("in the background")


async def fail_soon() -> None:
    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)


async def answer() -> int:
    return 42


async def refuse() -> None:
    raise KeyError("no")


def test_what_fails_in_the_background_is_raised_with_its_cause_and_once() -> None:
    thread = LoopThread("the thread")
    with pytest.raises(LevelogError, match="the thread failed: ZeroDivisionError") as failed:
        thread.call(fail_soon())
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert thread.call(answer()) == 42
    with pytest.raises(KeyError, match="no"):
        thread.call(refuse())
    thread.end()


async def leave() -> None:
    raise SystemExit("no more")


def test_a_task_that_exits_ends_neither_the_thread_nor_the_process() -> None:
    thread = LoopThread("the thread")
    with pytest.raises(LevelogError, match=r"the thread was ended by SystemExit\('no more'\)") as ended:
        thread.call(leave())
    assert isinstance(ended.value.__cause__, SystemExit)
    assert thread.call(answer()) == 42
    thread.end()
