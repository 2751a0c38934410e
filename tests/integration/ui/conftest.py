"""Stories behind pages: the demo's, with a Web that is there, and that of examples/lastnight; and browsers."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import pytest_asyncio
import yaml

from rigs.api import Api
from rigs.browser import Browser, BrowserMissing, chromium
from rigs.kinds import manifest
from rigs.lastnight import BAD, FIXED, LastNight, record_last_night
from rigs.levelog import Levelog, Running
from rigs.preloaded import PROGRAM
from rigs.waiting import until

if TYPE_CHECKING:
    from selenium import webdriver

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\u202egnp.exe\u001b[31m"
LONG = f"long-{'x' * 247}"
"""Its pods would have names that are too long, which the API refuses."""
WEBS = "/apis/example.com/v1/namespaces/default/webs"


class Shown(NamedTuple):
    """A demo that stays up, with its pages."""

    url: str
    data: Path
    api: Api
    levelog: Levelog


def web(name: str, image: str, replicas: int) -> dict[str, Any]:
    return manifest("Web", name, image=image, replicas=replicas)


def api_of(kubeconfig: Path) -> Api:
    return Api(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """The demo has come to its end; then a Web `shop` has three pods, of which somebody deleted `shop-1`."""
    folder = tmp_path_factory.mktemp("demo")
    levelog = Levelog(folder)
    log = folder / "demo.log"
    running = Running([PROGRAM, "demo", "--ui"], log, env={**levelog.env, "TMPDIR": str(folder)}, folder=folder)
    try:
        told = await running.says("pages of webs: ", seconds=180)
        found = re.search(r"KUBECONFIG=(\S+) LEVELOG_DATA_DIR=(\S+)", log.read_text())
        assert found is not None
        api, url = api_of(Path(found[1])), told.rpartition(" ")[2].partition("/o/")[0]
        for each in (web("shop", "nginx:1.29", 3), web("hostile", HOSTILE, 1), web(LONG, "nginx:1.29", 1)):
            assert (await api.request("POST", WEBS, each))[0] == 201
        shown = Shown(url, Path(found[2]), api, Levelog(folder))

        async def has_settled(rounds: int) -> bool:
            levels = await shown.levelog.levels("--data-dir", str(shown.data))
            found = {each["parent"].rpartition("/")[2]: each for each in levels}
            return (
                len(found) == 3
                and (found["shop"]["status"], found["shop"]["round"]) == ("in_sync", rounds)
                and (found["hostile"]["status"], found[LONG]["status"]) == ("in_sync", "failed")
            )

        await until(lambda: has_settled(1), "two levels in sync, and one that fails")
        assert (await api.request("DELETE", "/api/v1/namespaces/default/pods/shop-1"))[0] == 200
        await until(lambda: has_settled(2), "the pod again")
        yield shown
    finally:
        running.stop()


class Served(NamedTuple):
    """Pages of the same night, from the log and from its bundle; with the bad code, with the fix, and with none."""

    night: LastNight
    live: str
    bundle: str
    fixed: str
    plain: str


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("what-if")
    async with record_last_night(folder) as night:
        of_bundle, of_log = (options for options, _ in night.sources)
        pages = night.levelog.pages
        served = (
            pages(*of_log, "--code", BAD, env=night.env),
            pages(*of_bundle, "--code", BAD),
            pages(*of_bundle, "--code", FIXED),
            pages(*of_bundle),
        )
        async with AsyncExitStack() as stack:
            yield Served(night, *(await asyncio.gather(*map(stack.enter_async_context, served))))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[webdriver.Chrome]":
    """A Chromium for all tests: each would spend half of its time on a start."""
    try:
        started = chromium(tmp_path_factory.mktemp("chromium"))
    except BrowserMissing as missing:
        pytest.skip(str(missing))
    yield started
    started.quit()


@pytest.fixture
def browser(driver: "webdriver.Chrome") -> Callable[..., Browser]:
    """Makes a browser, to be entered."""
    return partial(Browser, driver)
