"""`levelog run --ui`: pages beside an application, which end with it, however it ends."""

import signal
from pathlib import Path

import aiohttp
import pytest

from rigs.levelog import WEBS_FILE, Levelog, sandbox_of_shop
from rigs.waiting import until
from rigs.webpages import get

pytestmark = pytest.mark.xdist_group("ui")
WEB = "/o/webs.example.com/default/shop"


async def status_of(url: str, **headers: str) -> int:
    """0: nobody listens there."""
    try:
        return (await get(url, **headers)).status
    except aiohttp.ClientConnectionError:
        return 0


@pytest.mark.parametrize(
    ("options", "wish"), [([], signal.SIGTERM), ([], signal.SIGKILL), (["--reload"], signal.SIGTERM)]
)
async def test_pages_come_and_go_with_the_application(tmp_path: Path, options: list[str], wish: signal.Signals) -> None:
    async with sandbox_of_shop() as sandbox:
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        running = levelog.start("run", WEBS_FILE, "--ui", *options)
        try:
            url = await running.serves()
            await levelog.in_sync()
            assert await status_of(url + WEB) == 200
            assert await status_of(url + WEB, Host="evil.example.com") == 403
            assert await status_of(url + WEB, Origin="http://evil.example.com") == 403
            assert await running.stops(wish) == (0 if wish is signal.SIGTERM else -signal.SIGKILL)
            await until(lambda: status_of(url), "the end of the pages", accept=lambda found: found == 0)
        finally:
            if running.is_running:
                running.stop()
        assert "Traceback" not in running.log.read_text()
