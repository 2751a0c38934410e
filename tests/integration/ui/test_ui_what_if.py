"""Pages that decide again, with code given at their start: as the commands do, on the log and a bundle."""

import asyncio
import gc
import json
import re
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application
from levelog_cli.loading import load_application
from levelog_cli.servers.backing import known_redactor
from levelog_cli.settings import Settings
from levelog_replay.bundles.reading import open_bundle
from levelog_ui.again import AgainCode, AgainRun, MadeAgain
from levelog_ui.bundlepast import BundlePast
from levelog_ui.server import PageServer, serving
from rigs.browser import ENTER
from rigs.lastnight import BAD, FIXED, ORDERS, SHOP, LastNight
from rigs.levelog import Running
from rigs.webpages import get

pytestmark = pytest.mark.xdist_group("ui")


async def read(url: str) -> tuple[int, str]:
    """Status and text of a page, once it comes back no more."""
    while True:
        page = await get(url)
        if (later := re.search(r'http-equiv="refresh" content="1; url=([^"]*)"', page.text)) is None:
            return page.status, page.shown
        url = urljoin(url, unescape(later[1]))


def edits_of(night: LastNight) -> list[tuple[str, list[str]]]:
    """Each as the address has it, and as the command takes it."""
    one, other = str(night.stranger), str(night.scaled)
    return [
        (f"drop={one}", ["--drop", one]),
        (f"drop={one},{other}", ["--drop", one, "--drop", other]),
        (f"swap={one}+{other}", ["--swap", one, other]),
        (f"set={other}+spec.replicas%3D1", ["--set", other, "spec.replicas=1"]),
        ("delay-receipt=3s", ["--delay-receipt", "3s"]),
    ]


async def test_a_page_shows_the_decisions_that_the_command_finds(served: Any) -> None:
    for query, options in edits_of(served.night):
        ended = await served.night.levelog.ends(
            "what-if", str(BAD), *options, "--bundle", str(served.night.bundle), "--json"
        )
        differing = json.loads(ended.stdout)["differing"]
        count = f"{len(differing)} decision{'s differ' if len(differing) != 1 else ' differs'}"
        for url in (served.live, served.bundle):
            status, text = await read(f"{url}/what-if?{query}")
            assert status == 200, text
            assert count in text, query
            for each in differing:
                assert f" {each['cause']} webs/pods of {SHOP} " in text
            assert f"what-if {BAD}" in text
            assert " ".join(options) in text.replace("'", ""), "the command is the same"


async def test_what_cannot_be_changed_is_said(served: Any) -> None:
    for query, why in (
        ("drop=x", "drop=x is no sequence of a record"),
        ("drop=999", "there is no record 999"),
        ("swap=20", "name two records"),
        (f"set={served.night.scaled}", "write FIELD=VALUE"),
        (f"set={served.night.receipt}+a%3D1", "is of no object"),
        ("set=20,23+spec.replicas%3D1", "name one record"),
        (f"set={served.night.scaled}+spec.replicas%3D%5B1", "the value is no YAML"),
        ("delay-receipt=soon", "write how long, as in 3s"),
        ("delay-receipt=999999999d", "write how long, as in 3s"),
        (f"drop={served.night.scaled}&set={served.night.scaled}+spec.replicas%3D1", "a record is named twice"),
        ("set=" + quote("23 <script>=1"), "<script>"),
    ):
        status, text = await read(f"{served.bundle}/what-if?{query}")
        assert status == 400, text
        assert why in text


async def test_without_code_nothing_is_decided_and_no_page_offers_it(served: Any) -> None:
    status, text = await read(f"{served.plain}/what-if?drop={served.night.stranger}")
    assert status == 400
    assert "start them with --code FILE" in text
    assert (await read(f"{served.plain}/d/1/again"))[0] == 400
    assert "what if not?" not in (await read(f"{served.plain}/o/{SHOP}"))[1]
    assert "what if not?" in (await read(f"{served.bundle}/o/{SHOP}"))[1]


async def test_a_decision_is_made_again_with_the_code_that_was_given(served: Any) -> None:
    page = await get(f"{served.bundle}/o/pods/default/migrate-orders")
    ordinal = re.findall(r'href="/d/(\d+)"', page.text)[0]
    for url in (served.live, served.bundle):
        assert "It comes out the same" in (await read(f"{url}/d/{ordinal}/again"))[1]
    _, text = await read(f"{served.fixed}/d/{ordinal}/again")
    assert "It comes out otherwise: settling → in_sync" in text
    assert "delete pods/default/migrate-orders → none" in text
    assert (await read(f"{served.fixed}/d/999999/again"))[0] == 404


async def test_all_decisions_are_made_again_as_the_command_does(served: Any) -> None:
    """Would the fix have helped?"""
    options = ["--bundle", str(served.night.bundle), "--json"]
    told = json.loads((await served.night.levelog.ends("replay", str(FIXED), *options)).stdout)["views"]["webs/pods"]
    _, text = await read(f"{served.fixed}/again")
    made = told["changed"] + told["same"]
    assert f"Yes , {told['changed']} of {made} decisions, on 1 level" in text
    assert f"{served.night.stranger} webs/pods of {SHOP} settling in_sync writes" in text
    assert "delete pods/default/migrate-orders → none" in text
    assert "Not in sync now" not in text
    for url in (served.live, served.bundle):
        _, text = await read(f"{url}/again")
        assert "No : 5 decisions come out the same" in text
        assert f"Not in sync now, and nothing differs for: webs/pods of {SHOP}" in text
    assert (await read(f"{served.plain}/again"))[0] == 400


async def test_other_pages_are_answered_while_decisions_are_made_again(served: Any) -> None:
    past = BundlePast(open_bundle(served.night.bundle))
    gate, began = threading.Event(), threading.Event()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[BundlePast]:
        began.set()
        gate.wait()  # the thread stands still, as in a function that computes for long
        yield past

    settings = Settings(application="webs")
    program = load_application(settings, [FIXED]).program
    again = AgainCode(
        FIXED, Application("webs"), program, opened, redactor=known_redactor(settings), threads=settings.threads
    )
    server = PageServer(again=again)
    async with serving(server, "127.0.0.1", 0) as url, server.showing(past):
        try:
            text = (await get(f"{url}/again")).text
            assert began.is_set()
            assert 'content="1; url=/again?run=1"' in text
            assert (await read(f"{url}/levels"))[0] == 200
            assert "run=1" in (await get(f"{url}/again")).text, "the same question is asked once"
            assert "other questions come first" in (await get(f"{url}/what-if?drop={served.night.stranger}")).text
        finally:
            gate.set()
        assert "Yes , 3 of 5 decisions" in (await read(f"{url}/again?run=1"))[1]
        again.close()


async def test_a_question_that_nobody_comes_back_for_may_fail(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelog_ui.again._SOON_SECONDS", 0.01)
    gate = threading.Event()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[BundlePast]:
        gate.wait()
        raise ConfigurationError("the log is gone")
        yield

    program = load_application(Settings(application="webs"), [FIXED]).program
    again = AgainCode(FIXED, Application("webs"), program, opened, redactor=Redactor(is_off=True), threads=1)
    run = await again.ask(MadeAgain())
    gate.set()
    await asyncio.wait([run.ended])
    again.close()
    del again, run
    gc.collect()
    assert not caplog.records


async def test_a_question_that_is_about_to_be_answered_is_given_up_when_the_pages_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("levelog_ui.again._SOON_SECONDS", 0.01)
    may_begin = threading.Event()

    class Late(AgainCode):
        def _carry_out(self, run: AgainRun) -> None:
            may_begin.wait()
            super()._carry_out(run)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[BundlePast]:
        await asyncio.Event().wait()
        raise AssertionError
        yield

    program = load_application(Settings(application="webs"), [FIXED]).program
    again = Late(FIXED, Application("webs"), program, opened, redactor=Redactor(is_off=True), threads=1)
    run = await again.ask(MadeAgain())
    again.close()
    may_begin.set()
    ended, _ = await asyncio.wait([run.ended], timeout=30)
    assert ended


async def test_the_test_that_a_decision_offers_passes_with_its_code_and_fails_with_the_fix(
    served: Any, tmp_path: Path
) -> None:
    page = await get(f"{served.bundle}/d/1")
    found = re.search(r'<details id="test">.*?<pre>(.*?)</pre>', page.text, re.DOTALL)
    assert found is not None
    (tmp_path / "test_case.py").write_text(unescape(found[1]))
    (tmp_path / served.night.bundle.name).write_bytes(served.night.bundle.read_bytes())
    for code, status in ((BAD, 0), (FIXED, 1)):
        (tmp_path / "webs.py").write_text(code.read_text())
        log = tmp_path / f"{status}.log"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_case.py"]
        running = Running(argv, log, env={**served.night.levelog.env, "PYTHONDONTWRITEBYTECODE": "1"}, folder=tmp_path)
        assert await running.ends(seconds=120) == status, log.read_text()


async def test_a_record_is_left_out_without_scripts(served: Any, browser: object) -> None:
    async with browser(has_scripts=False) as page:  # type: ignore[operator]
        await page.open(f"{served.bundle}/o/{SHOP}")
        await page.script(f"document.querySelector('#r{served.night.stranger} .otherwise').click()")
        await page.shows("h2", "2 decisions differ")
        await page.click("input[name=swap]")
        await page.press(f"{served.night.stranger} {served.night.scaled}")
        await page.click("input[name=drop]")
        await page.script("document.querySelector('input[name=drop]').value = ''")
        await page.press(ENTER)
        await page.shows("h2", "3 decisions differ")
        assert f"swap={served.night.stranger}+{served.night.scaled}" in await page.script("location.search")
        await page.picture("what-if.png")
        assert await page.complaints() == []


async def test_whether_the_fix_would_have_helped_is_one_click_away_without_scripts(
    served: Any, browser: object
) -> None:
    async with browser(has_scripts=False, width=390) as page:  # type: ignore[operator]
        for path in ("/levels", f"/o/{SHOP}", f"/what-if?drop={served.night.stranger}", "/fields"):
            await page.open(served.fixed + path)
            assert await page.script("document.documentElement.scrollWidth") <= 390, path
            await page.click('nav a[href="/again"]')
            await page.shows(".lead", "Yes, 3 of 5 decisions, on 1 level")
            assert await page.script("document.documentElement.scrollWidth") <= 390
        await page.picture("again-390.png")


async def test_leaving_an_object_out_leaves_out_all_its_records(served: Any, browser: object) -> None:
    """Of one whose first record is missing, the next one is the first: the operator would delete it all the same."""
    night = served.night
    async with browser() as page:  # type: ignore[operator]
        await page.open(f"{served.bundle}/o/{ORDERS}")
        await page.click(f"#r{night.stranger} .otherwise")
        await page.shows("h2", "2 decisions differ")
        assert await page.script("location.search") == f"?drop={night.stranger},{night.gone}"


async def test_the_page_of_what_differs_keeps_nobody_out(served: Any, browser: object) -> None:
    async with browser() as page:  # type: ignore[operator]
        await page.open(f"{served.bundle}/what-if?swap={served.night.stranger}+{served.night.scaled}")
        await page.shows("h2", "3 decisions differ")
        assert await page.barriers() == []
        await page.open(f"{served.fixed}/again")
        await page.shows(".lead", "Yes, 3 of 5 decisions")
        assert await page.barriers() == []
