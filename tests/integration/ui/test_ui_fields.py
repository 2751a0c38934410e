"""The page of fields: what the command counts, and what came of each change."""

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import NamedTuple

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import update

from levelog_base.wire.records import ObjectSeen, Written
from levelog_cli.loading import load_operators
from levelog_store.connect.database import Database
from levelog_store.tables import levels
from rigs.levelog import WEBS_FILE, Levelog
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webpages import get
from rigs.webs import web

pytestmark = pytest.mark.xdist_group("ui")


class Fight(NamedTuple):
    """Two managers that set the replicas of a Web back for each other, and a status that nothing reads."""

    live: str
    bundle: str
    second: int
    """The record in which the second one set it first."""
    levelog: Levelog
    env: dict[str, str]


def by(manager: str, record: ObjectSeen) -> ObjectSeen:
    return replace(record, written=Written(manager=manager, at=""))


def with_status(record: ObjectSeen, ready: int) -> ObjectSeen:
    return replace(record, body=msgspec.json.encode({**msgspec.json.decode(record.body), "status": {"ready": ready}}))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fight(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fight]:
    folder = tmp_path_factory.mktemp("fight")
    url, bundle = f"sqlite:///{folder}/levelog.db", folder / "fight.jsonl"
    async with NatsServer() as nats:
        env = {"LEVELOG_NATS_URL": nats.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
        levelog = Levelog(folder)
        second = 0
        async with Processing(nats.url, url, load_operators([WEBS_FILE])) as stack:
            stack.start()
            await stack.folded(await stack.listed(by("argocd", web("shop", 1, replicas=0)), version=5))
            for version in range(6, 12):
                manager = ("hpa", "argocd")[version % 2]
                told = await stack.tell(by(manager, web("shop", version, replicas=1 - version % 2)))
                second = second or told
                await stack.folded(told)
            for version in range(12, 15):
                await stack.folded(
                    await stack.tell(by("shops", with_status(web("shop", version, replicas=0), version)))
                )
            written = await levelog.ends("export", bundle, env=env)
            assert written.status == 0, written.stderr
        async with levelog.pages(env=env) as live, levelog.pages("--bundle", bundle) as recorded:
            yield Fight(live, recorded, second, levelog, env)


async def tables(url: str) -> dict[str, list[list[str]]]:
    """Rows of each section."""
    status, text, _ = await get(url)
    assert status == 200, text
    found: dict[str, list[list[str]]] = {}
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        name = re.findall(r'<h2 id="(\w+)"', section)[0]
        body = section.partition("<tbody>")[2]
        rows = [re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for row in body.split("</tr>") if "<td" in row]
        found[name] = [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in rows]
    return found


async def test_a_field_that_two_managers_set_back_is_contested_as_the_command_says(fight: Fight) -> None:
    ended = await fight.levelog.ends("writers", "--json", env=fight.env)
    told = json.loads(ended.stdout)
    assert [(each["manager"], each["undoes"]) for each in told] == [("argocd", "hpa"), ("hpa", "argocd")]
    rows = [
        [*(str(each[name]) for name in ("manager", "undoes", "times", "objects", "resource", "field"))] for each in told
    ]
    for url in (fight.live, fight.bundle):
        assert (await tables(f"{url}/fields"))["contests"] == rows


async def test_writers_are_those_that_the_command_counts(fight: Fight) -> None:
    ended = await fight.levelog.ends("writers", "webs.example.com", "--json", env=fight.env)
    told = [[each["manager"], str(each["writes"])] for each in json.loads(ended.stdout)]
    for url in (fight.live, fight.bundle):
        assert [[row[0], row[3]] for row in (await tables(f"{url}/fields"))["writers"]] == told


async def test_what_wakes_most_for_nothing_stands_first(fight: Fight) -> None:
    for url in (fight.live, fight.bundle):
        rows = (await tables(f"{url}/fields"))["wakes"]
        assert [[row[0], *row[2:]] for row in rows] == [
            ["spec.replicas", "argocd", "3", "3", "", "3"],
            ["spec.replicas", "hpa", "3", "3", "3", ""],
            ["status.ready", "shops", "2", "", "", ""],
            ["status", "shops", "1", "", "", ""],
        ]


async def test_since_counts_what_came_after(fight: Fight) -> None:
    for url in (fight.live, fight.bundle):
        rows = (await tables(f"{url}/fields?since={fight.second}"))["wakes"]
        assert [row[3] for row in rows if row[2] == "hpa"] == ["2"]
        status, text, _ = await get(f"{url}/fields?since=soon")
        assert status == 400
        assert "is no moment" in text


async def test_a_level_that_is_undone_and_looks_right_says_what_it_waits_for(fight: Fight) -> None:
    row = {"status": "failed", "reason": "undone 3 times by hpa", "drift": None}
    async with await Database.open(fight.env["LEVELOG_DATABASE_URL"]) as database, database.transaction() as connection:
        await connection.execute(update(levels).values(row))
    told = (await get(f"{fight.live}/levels")).text.partition("undone 3 times by hpa")[2]
    assert 'in sync once nobody has undone it for a while: <a href="/fields">' in told
