"""What a reader asks the morning after, of the log and of its bundle: who did it, why, and what failed."""

import re
from typing import Any

import pytest

from rigs.lastnight import ORDERS, SHOP
from rigs.webpages import get

pytestmark = pytest.mark.xdist_group("ui")


async def read(url: str) -> str:
    """The text of a page."""
    page = await get(url)
    assert page.status == 200, url
    return page.shown


async def decisions(url: str) -> list[int]:
    """Of the Web, oldest first."""
    return sorted({int(each) for each in re.findall(r'href="/d/(\d+)"', (await get(f"{url}/o/{SHOP}")).text)})


async def test_a_level_that_settles_says_what_failed_before(served: Any) -> None:
    """Its last round is on its way, and the one before was refused."""
    for url in (served.live, served.bundle):
        made = await decisions(url)
        failed = "Before that, 2 writes failed; the last, 2026-01-01 12:00:00 UTC, was delete pods/default/shop-1"
        for path in ("/levels", f"/o/{SHOP}", f"/d/{made[-1]}"):
            text = await read(url + path)
            assert failed in text, path
            assert "exceeded quota" in text
        assert "Before that" not in await read(f"{url}/levels?status=any&at={served.night.scaled}")
        assert "Before that" not in await read(f"{url}/d/{made[-2]}"), "its own writes are in its table"


async def test_a_bundle_says_what_a_level_waits_for(served: Any) -> None:
    waits = "delete pods/default/shop-0 no answer recorded delete pods/default/shop-1 no answer recorded"
    assert waits in await read(f"{served.bundle}/levels")
    assert "delete pods/default/shop-0 failed: exceeded quota" in await read(
        f"{served.bundle}/levels?at={served.night.refused}"
    )


async def test_who_deleted_is_an_operator_and_why_is_a_label(served: Any) -> None:
    why = f'{ORDERS} is in images under "shop", its label app'
    for url in (served.live, served.bundle):
        text = await read(f"{url}/o/{ORDERS}")
        assert "deleted by operator webs, view pods" in text
        assert why in text
        made = [await read(f"{url}/d/{each}") for each in await decisions(url)]
        assert sum(why in each for each in made) == 1


async def test_days_are_told_where_they_change(served: Any, browser: Any) -> None:
    """Records of this story are of another year than decisions on them."""
    async with browser(has_scripts=False) as page:
        await page.open(f"{served.bundle}/o/{ORDERS}")
        days = await page.texts(".why .day")
        assert (days[0], days[2]) == ("2026-01-01", "2026-01-01")
        assert len(days) == 3
        assert len(set(await page.texts("svg text.pause"))) >= 2
