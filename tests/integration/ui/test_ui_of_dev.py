"""`levelog dev --ui`: pages that follow the application through its restarts."""

from pathlib import Path

import pytest

from rigs.levelog import WEBS, Levelog, Running
from rigs.preloaded import PROGRAM
from rigs.waiting import until
from rigs.webpages import get

pytestmark = pytest.mark.xdist_group("ui")
WEB = "/o/webs.example.com/default/shop"


async def test_pages_of_dev_go_on_after_the_code_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "webs.py"
    file.write_text((WEBS / "webs.py").read_text())
    argv: list[str | Path] = [PROGRAM, "dev", file, "--create", WEBS / "shop.yaml", "--ui"]
    running = Running(argv, tmp_path / "dev.log", env=Levelog(tmp_path).env, folder=tmp_path)
    try:
        url = await running.serves()

        async def page() -> str:
            found = await get(url + WEB)
            return found.text if found.status == 200 else ""

        await until(page, "a page of the Web in sync", accept=lambda found: 'class="badge in_sync"' in found)
        file.write_text(file.read_text().replace('f"{web.metadata.name}-{n}"', 'f"{web.metadata.name}-x{n}"'))

        async def has_changed() -> bool:
            return "shop-x2 created" in await page()

        await until(has_changed, "a page with what the new code wrote")
        assert "by other code than before" in await page()
    finally:
        running.stop()
    assert "Traceback" not in (tmp_path / "dev.log").read_text()
