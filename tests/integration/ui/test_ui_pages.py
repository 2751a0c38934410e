"""Pages in a browser: the demo's story is found, told and renewed; on a phone, in the dark, without scripts."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rigs.browser import ENTER, TAB, Browser
from rigs.ports import free_port
from rigs.run.examples import short_or_whole

pytestmark = pytest.mark.xdist_group("ui")
POD = "/o/pods/default/shop-1"
WEB = "/o/webs.example.com/default/shop"
PAGES = ("/levels", f"/o/webs.example.com/default/long-{'x' * 247}", WEB, POD, "/flow", "/find?q=no-such-object")
STAGES = ["watch", "log", "fold", "decide", "write", "seen"]
Opens = Callable[..., Browser]


async def decision(browser: Browser) -> None:
    """Go to the newest decision that wrote, from the page of the Web."""
    await browser.click(".why .decision.settling a.what")


async def test_who_deleted_a_pod_and_what_the_operator_did(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + POD)
        assert await page.texts("h1 .badge") == ["exists"]
        assert "pods/default/shop-1 created by operator webs, view pods." in (await page.texts(".lead"))[0]
        deleted, decided, created = (await page.texts(".why > li"))[-3:]
        assert "pods/default/shop-1 deleted not by levelog; the API does not record who deletes" in deleted
        assert "webs/pods: in_sync → settling, round 2" in decided
        assert "missing shop-1 apply pods/default/shop-1: done, seen in " in decided
        assert "pods/default/shop-1 created by operator webs, view pods" in created
        await page.picture("ui.png", height=700)
        assert await page.complaints() == []
        await page.click("svg a.dot.deleted:last-of-type, svg a.dot.deleted")
        assert await page.texts(".mark:target .what") != []


async def test_lanes_show_each_object_level_and_write_with_lines_from_causes(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + WEB)
        lanes = [each.split()[0] for each in await page.texts(".heads li")]
        assert lanes == ["shop", "shop-0", "shop-1", "shop-2", "webs/pods", "writes"]
        because = await page.script("[...document.querySelectorAll('svg a.dot.in_sync')].at(-1).dataset.because")
        drawn = await page.script(
            "[...document.querySelectorAll('svg a.dot.in_sync')].at(-1).querySelectorAll('path').length"
        )
        assert drawn == len(because.split()) > 0


async def test_records_that_caused_nothing_are_one_line_that_can_be_opened(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + WEB)
        folded = await page.shows(".mark.quiet", "caused nothing: no view reads what changed")
        count = int(folded.split()[2])
        assert count == len(await page.texts(".mark.quiet .mark")) == 100


async def test_a_decision_shows_inputs_both_sides_and_what_became_of_each_write(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + POD)
        await decision(page)
        assert (await page.texts("h1"))[0].startswith("webs/pods of shop settling")
        assert await page.texts("table.sides .drifts") == ['shop-1 "nginx:1.29" nothing missing']
        assert '- ["shop-1","nginx:1.29"]' in await page.shows(".changed-row", "images[")
        wrote = await page.shows("tbody tr", "apply pods/default/shop-1")
        assert re.search(r"settled \d+ written as version \d+, HTTP 201 \d+$", wrote), wrote
        await page.picture("decision.png")
        await page.click("nav.pages a[rel=next]")
        assert "in_sync" in (await page.texts("h1"))[0]
        assert await page.complaints() == []


async def test_levels_are_chosen_in_the_address(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(f"{shown.url}/levels?status=in_sync&order=parent")
        assert [each.split()[1] for each in await page.texts("tbody tr")] == [
            "webs.example.com/default/hostile",
            "webs.example.com/default/shop",
        ]
        await page.open(f"{shown.url}/levels?status=settling")
        assert await page.texts("tbody tr") == []
        await page.open(f"{shown.url}/levels")
        failed = await page.shows("tbody tr", "failed webs.example.com/default/long-xxx")
        assert "missing long-xxx" in failed
        assert "apply pods/default/long-xxx" in failed
        await page.picture("levels.png")
        await page.open(f"{shown.url}/levels?status=any&name=shop")
        await page.click("td.name a")
        assert (await page.texts("h1"))[0].startswith("webs.example.com/default/ shop") or "shop" in (
            await page.texts("h1")
        )[0]


async def test_levels_are_shown_as_they_were_at_a_record(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + POD)
        gone = int((await page.texts(".why .mark.deleted .number"))[-1])
        await page.open(f"{shown.url}/levels?at={gone}&name=shop&status=any")
        assert await page.texts("tbody .badge") == ["settling"]
        assert await page.texts("tbody .drift") == ["missing shop-1"]
        await page.picture("levels-then.png")
        for _ in range(2):
            await page.click("nav.pages a[rel=prev]")
        assert await page.texts("tbody .badge") == ["in_sync"]
        await page.click("tbody td.name a")
        assert int((await page.texts(".marks .mark:last-child .number"))[-1].replace("=>", "0")) < gone


async def test_the_flow_has_six_stages_and_sixteen_partitions(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(f"{shown.url}/flow")
        assert await page.texts(".stage .name") == STAGES
        assert len(await page.texts("table tbody tr")) >= 16
        assert "1 level failed" in await page.texts(".stage.broken .lag")
        await page.picture("flow.png")
        assert await page.complaints() == []


async def test_an_object_is_found_by_the_end_of_its_name(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(f"{shown.url}/levels")
        await page.click("input[type=search]")
        await page.press("shop-1", ENTER)
        await page.shows("h1", "shop-1")
        assert (await page.script("location.pathname")) == POD


async def test_hostile_values_are_shown_and_do_nothing(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        for path in ("/o/webs.example.com/default/hostile", "/o/pods/default/hostile-0"):
            await page.open(shown.url + path)
            await decision(page)
            assert "<script>document.title='owned'</script>" in (await page.texts("table.sides pre"))[0]
            assert "\\u202egnp.exe\\u001b[31m" in (await page.texts("table.sides pre"))[0]
            assert await page.script("document.querySelectorAll('main script, main img').length") == 0
            assert "owned" not in await page.script("document.title")
            assert await page.complaints() == []
        await page.open(f"{shown.url}/find?q=%3Cscript%3Ealert(1)%3C/script%3E")
        await page.shows(".refusal", "<script>alert(1)</script>")


async def test_pages_tell_all_without_scripts(shown: Any, browser: Opens) -> None:
    async with browser(has_scripts=False) as page:
        for path in PAGES:
            await page.open(shown.url + path)
            assert len(await page.texts("h1")) == 1, path
        await page.open(shown.url + POD)
        assert len(await page.texts(".marks .mark")) > 10
        assert await page.texts(".connection") == [""]


@pytest.mark.parametrize(("width", "is_dark"), [(390, True), pytest.param(1280, False, marks=pytest.mark.long)])
async def test_pages_fit_a_phone_and_the_dark(shown: Any, browser: Opens, width: int, is_dark: bool) -> None:
    async with browser(width=width, is_dark=is_dark) as page:
        for path in PAGES:
            await page.open(shown.url + path)
            assert await page.script("document.documentElement.scrollWidth") <= width, path
            paper = json.loads(f"[{(await page.script('getComputedStyle(document.body).backgroundColor'))[4:-1]}]")
            assert (max(paper) < 64) is is_dark
            await page.picture(f"{path[1:40].partition('?')[0].replace('/', '-')}-{width}{'-dark' * is_dark}.png")


@pytest.mark.parametrize("is_dark", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_nobody_is_kept_out_by_a_page(shown: Any, browser: Opens, is_dark: bool) -> None:
    async with browser(is_dark=is_dark) as page:
        await page.open(shown.url + POD)
        made = await page.script("document.querySelector('.why .decision a.what').getAttribute('href')")
        found: dict[str, list[str]] = {}
        others = () if is_dark else short_or_whole(("/flow",), ("/flow", "/fields", "/what-if", PAGES[-1]))
        for path in ("/levels", POD, made, *others):
            await page.open(shown.url + path)
            found[path] = await page.barriers()
        assert not any(found.values()), found


async def test_a_dot_is_reached_by_keyboard(shown: Any, browser: Opens) -> None:
    async with browser() as page:
        await page.open(shown.url + POD)
        await page.script("document.querySelector('.scroll').focus()")
        await page.press(TAB, ENTER)
        assert (await page.script("location.hash")).startswith("#")
        assert len(await page.texts(".mark:target")) == 1


@pytest.mark.long
async def test_pages_that_were_left_keep_no_connection_and_one_that_is_returned_to_is_live(
    shown: Any, browser: Opens
) -> None:
    async with browser() as page:
        for path in ("/levels", POD) * 4:  # more than a browser has connections to a server
            await page.open(shown.url + path)
            await page.shows(".connection", "live")
            await page.script("window.isKept = true")
        await page.back()
        assert await page.script("[location.pathname, window.isKept].join()") == "/levels,true"
        await page.shows(".connection", "live")


async def test_an_open_page_renews_itself_and_survives_another_server(shown: Any, browser: Opens) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with browser() as page:
        async with shown.levelog.pages("--data-dir", shown.data, address=address) as url:
            await page.open(f"{url}/o/pods/default/hostile-0")
            await page.shows(".connection", "live")
            assert not any("hostile-0 deleted" in each for each in await page.texts(".marks .mark"))
            await shown.api.request("DELETE", "/api/v1/namespaces/default/pods/hostile-0")
            await page.shows(".why .mark", "hostile-0 created", seconds=60)
            await page.shows(".marks .mark", "hostile-0 deleted")
        await page.shows(".connection", "connection lost")
        async with shown.levelog.pages("--data-dir", shown.data, address=address):
            await page.shows(".connection", "live", seconds=60)
