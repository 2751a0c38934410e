"""The pages as people ask for them: of `levelog ui`, `dev` and `run`, and of last night."""

import re
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from rigs.api import MERGE_PATCH
from rigs.lastnight import ORDERS, SHOP
from rigs.levelog import WEBS, WEBS_FILE, Levelog, Running, sandbox_of_shop
from rigs.preloaded import PROGRAM
from rigs.waiting import until
from rigs.webpages import get

pytestmark = pytest.mark.xdist_group("ui")
POD = "/o/pods/default/shop-1"
WEB = "/o/webs.example.com/default/shop"
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "evil.example.com"}, 403),
        ({"Origin": "http://evil.example.com"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        (LINK, 200),
        ({**LINK, "Sec-Fetch-Dest": "iframe"}, 403),
        ({**LINK, "Origin": "null"}, 403),
    ],
)
async def test_pages_are_for_people_and_their_links(shown: Any, headers: dict[str, str], status: int) -> None:
    for path in ("/levels", POD, "/live" if status == 403 else "/flow"):
        assert (await get(shown.url + path, **headers))[0] == status


async def test_only_reading_is_answered(shown: Any) -> None:
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{shown.url}/levels") as response:
                assert response.status == 405


@pytest.mark.parametrize("path", ["/levels", POD, "/d/1", "/flow", "/nowhere", "/d/999999", "/o/x", "/assets/live.js"])
async def test_no_page_may_run_what_is_not_served(shown: Any, path: str) -> None:
    _, text, headers = await get(shown.url + path)
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert " style=" not in text
    assert "onclick" not in text


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/o/x", 400, "does not name an object"),
        ("/o/pods/default/nobody", 404, "holds no record of pods/default/nobody"),
        ("/d/999999", 404, "there is no decision 999999"),
        ("/levels?status=odd", 400, "there is no status"),
        ("/levels?order=odd", 400, "there is no order"),
        (f"{POD}?at=x", 400, "is no sequence of a record"),
        ("/assets/..%2fserver.py", 404, ""),
        ("/nowhere", 404, ""),
    ],
)
async def test_what_is_not_there_is_said(shown: Any, path: str, status: int, why: str) -> None:
    found, text, _ = await get(shown.url + path)
    assert found == status
    assert why in text


async def test_a_page_that_is_the_same_is_not_sent_again(shown: Any) -> None:
    _, _, headers = await get(shown.url + WEB)
    status, text, _ = await get(shown.url + WEB, **{"If-None-Match": headers["ETag"]})
    assert (status, text) == (304, "")


async def test_a_page_with_all_that_it_loads_is_small(shown: Any) -> None:
    """So it is there at once over a port that is forwarded from far away."""
    sizes: dict[str, int] = {}
    for path in ("/levels", "/levels?status=any", WEB, POD, "/d/1", "/fields", "/flow", "/what-if"):
        _, text, _ = await get(shown.url + path)
        loaded = [(await get(shown.url + each))[1] for each in set(re.findall(r'(?:src|href)="(/assets/[^"]*)"', text))]
        assert len(loaded) >= 2, path
        sizes[path] = sum(len(each.encode()) for each in (text, *loaded))
    assert max(sizes.values()) <= 150_000, sizes


async def test_hostile_values_stay_text_where_they_are_decided_again(shown: Any, tmp_path: Path) -> None:
    """Values of objects in what differs, names of writers among writers, and what an address asks."""
    manager = quote("<b>'\"&")
    spec = {"spec": {"replicas": 2}}
    path = f"/apis/example.com/v1/namespaces/default/webs/hostile?fieldManager={manager}"
    answer = await shown.api.request("PATCH", path, spec, content_type=MERGE_PATCH)
    assert answer[0] == 200, answer
    code = tmp_path / "webs.py"  # named as the application is
    code.write_text(WEBS_FILE.read_text().replace("range(web.spec.replicas)", "range(web.spec.replicas + 1)"))
    levelog = Levelog(tmp_path)
    del levelog.env["LEVELOG_REDACTION_KEY_FILE"]
    async with levelog.pages("--data-dir", shown.data, "--code", code) as url:
        asked = quote("23 <script>alert(1)</script>=1")

        async def pages() -> list[str]:
            return [(await get(url + each))[1] for each in ("/again", "/fields", f"/what-if?set={asked}")]

        async def have_answers() -> bool:
            again, fields, _ = await pages()
            return "hostile-1" in again and "&lt;b&gt;" in fields

        await until(have_answers, "what differs, and who wrote")
        for text in await pages():
            main = text.partition("<main")[2]
            assert not re.search(r"<(script|img|b)\b", main)
            assert "\u202e" not in text
            assert "\u001b" not in text


async def test_pages_are_told_where_log_and_decisions_end(shown: Any) -> None:
    status, text, _ = await get(f"{shown.url}/live")
    assert status == 200
    sequence, ordinal = map(int, text.split())
    assert sequence > 100
    assert ordinal > 1


async def test_a_page_of_levels_beyond_all_is_refused(shown: Any) -> None:
    status, text, _ = await get(f"{shown.url}/levels?page={'9' * 18}")
    assert status == 400
    assert "there is no page" in text


async def test_a_bundle_has_the_same_pages(shown: Any, tmp_path: Path) -> None:
    bundle = tmp_path / "demo.jsonl"
    ended = await shown.levelog.ends("export", bundle, "--data-dir", shown.data)
    assert ended.status == 0, ended
    async with shown.levelog.pages("--bundle", bundle) as url:
        for path in (POD, WEB):
            live, bundled = (await get(shown.url + path))[1], (await get(url + path))[1]
            assert _story(bundled) == _story(live), path
        assert "live.js" not in (await get(url + POD))[1]
        assert 'class="badge in_sync"' in (await get(f"{url}/levels?status=any"))[1]
        for at in ("&at=100", "&at=70"):
            live, bundled = [(await get(f"{each}/levels?status=any{at}"))[1] for each in (shown.url, url)]
            assert _levels(bundled) == _levels(live), at
        assert (await get(f"{url}/flow"))[0] == 404
        assert (await get(f"{url}/live"))[0] == 404


def _levels(text: str) -> list[str]:
    return [line for line in text.splitlines() if 'class="name"' in line or 'class="badge' in line]


def _story(text: str) -> list[str]:
    """The lines of records on a page; decisions without a call are not in a bundle."""
    return [line for line in text.partition("<main")[2].splitlines() if 'class="what"' in line and "/o/" in line]


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
        await until(page, "a page with what the new code wrote", accept=lambda found: "shop-x2 created" in found)
        assert "by other code than before" in await page()
    finally:
        running.stop()
    assert "Traceback" not in (tmp_path / "dev.log").read_text()


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
