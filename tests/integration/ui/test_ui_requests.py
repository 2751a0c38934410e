"""Who is answered, with which headers, and pages of a bundle: without a browser."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from rigs.api import MERGE_PATCH
from rigs.levelog import WEBS_FILE, Levelog
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
