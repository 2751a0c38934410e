"""A log whose older records have expired: what is asked of it before its beginning, and what is known since."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from rigs.levelog import WEBS_FILE, Levelog
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.webs import pod, web

SHOP = "webs.example.com/default/shop"


class Expired:
    """An application whose log begins in the middle of its life."""

    def __init__(self, levelog: Levelog, env: dict[str, str]) -> None:
        self.levelog = levelog
        self.env = env
        self.first = self.begins = self.scaled = self.last = 0
        """The first record; the end of the first complete list; the record that asks for five; the last."""

    async def json(self, *arguments: str | Path, status: int = 0) -> Any:
        ended = await self.levelog.ends(*arguments, "--json", env=self.env)
        assert ended.status == status, ended
        return json.loads(ended.stdout)


@pytest_asyncio.fixture
async def expired(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Expired]:
    url = f"sqlite:///{tmp_path}/levelog.db"
    env = {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_APPLICATION": "webs"}
    told = Expired(Levelog(tmp_path), env)
    async with Processing(nats_server.url, url) as stack:
        pods = [pod(f"shop-{n}", 2 + n, owner="uid-shop") for n in range(2)]
        await stack.begin(web("shop", 1, replicas=2), *pods, version=5)
        last = await stack.tell(web("shop", 6, replicas=3))
        await stack.folded(last)
        await stack.expire(last)
        told.first = await stack.tell(web("shop", 20, replicas=4))
        await stack.folded(told.first)
        told.begins = await stack.listed(web("shop", 20, replicas=4), *pods, version=30)
        await stack.folded(told.begins)
        told.scaled = await stack.tell(web("shop", 31, replicas=5))
        await stack.folded(told.scaled)
        told.last = await stack.tell(pod("shop-2", 32, owner="uid-shop"))
        await stack.folded(told.last)
        yield told


async def test_a_moment_that_has_expired_is_refused_with_the_first_that_can_be_given(expired: Expired) -> None:
    log_begins = f"is before the log begins: its first record is {expired.first}, of "
    history_begins = f"is before history begins: what was before sequence {expired.begins} ("
    bundle = expired.levelog.folder / "all.jsonl"
    written = await expired.levelog.ends("export", bundle, env=expired.env)
    assert written.status == 0, written
    cases: list[tuple[tuple[str | Path, ...], str, str]] = [
        (("history", SHOP, "--at"), "1", log_begins),
        (("why", SHOP, "--at"), "1", log_begins),
        (("why", SHOP, "--at"), "2000-01-01", log_begins),
        (("levels", "--at"), str(expired.first), history_begins),
        (("replay", WEBS_FILE, "--from"), "1", history_begins),
        (("replay", WEBS_FILE, "--bundle", bundle, "--from"), str(expired.first), history_begins),
        (("export", "new.jsonl", "--from"), "1", history_begins),
        (("export", "new.jsonl", "--to"), str(expired.last + 1), f"the log ends at sequence {expired.last}, before"),
        (("replay", WEBS_FILE, "--bundle", bundle, "--to"), "99999", f"the log ends at sequence {expired.last}"),
    ]
    for arguments, moment, sentence in cases:
        said = await expired.levelog.refused(*arguments, moment, status=2, env=expired.env)
        assert sentence in said, (arguments, moment)
    assert not (expired.levelog.folder / "new.jsonl").exists()


async def test_what_is_known_since_is_shown_and_decided_again(expired: Expired) -> None:
    found = await expired.json("replay", WEBS_FILE, "--from", str(expired.begins))
    assert (found["is_same"], found["obstacles"]) == (True, {})
    since = found["views"]["webs/pods"]["same"]
    assert since >= 2, "of the record that asks for five, and of the pod"
    found = await expired.json("replay", WEBS_FILE)
    tally = found["views"]["webs/pods"]
    assert (tally["same"], tally["changed"], found["is_same"]) == (since, 0, True)
    [(obstacle, skipped)] = found["obstacles"].items()
    assert obstacle.startswith("history begins later")
    assert tally["skipped"] == skipped >= 2
    [level] = await expired.json("levels", "--at", str(expired.scaled))
    assert len(level["desired"]) == 5
    then = await expired.levelog.ends("history", SHOP, "--at", str(expired.begins), env=expired.env)
    assert "replicas: 4" in then.stdout, then
    bundle = expired.levelog.folder / "since.jsonl"
    written = await expired.levelog.ends("export", bundle, "--from", str(expired.begins), env=expired.env)
    assert written.status == 0, written
    found = await expired.json("replay", WEBS_FILE, "--bundle", bundle)
    assert (found["views"]["webs/pods"]["same"], found["obstacles"]) == (since, {})


async def test_what_there_is_nothing_of_is_not_exported(expired: Expired) -> None:
    for arguments, sentence in (
        (("--object", "webs.example.com/default/none"), "recorded on webs.example.com/default/none: `levelog levels`"),
        (("--object", "a/b/c/d"), "names no objects"),
        (("--from", "soon"), "is no moment"),
        (("--from", str(expired.scaled), "--to", str(expired.begins)), "is after --to"),
        (("--application", "none"), "holds no such application"),
    ):
        said = await expired.levelog.refused("export", "new.jsonl", *arguments, status=2, env=expired.env)
        assert sentence in said, arguments
    (expired.levelog.folder / "there.jsonl").write_text("")
    assert "is there already" in await expired.levelog.refused("export", "there.jsonl", status=2, env=expired.env)
