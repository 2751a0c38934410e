"""`levelog run --events-from`: where record handlers begin that are new."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
import yaml

from levelog_sandbox import Sandbox
from rigs.levelog import WEBS, Levelog, define_webs
from rigs.waiting import until

OPERATOR: Final = """
from levelog import Operator, Resource

op = Operator("webs")

class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass

@op.index
def names(web: Web) -> dict[str, int]:
    return {web.metadata.name: 1}
"""
HANDLER: Final = """
@op.on.event
async def NAME(web: Web, sequence: int) -> None:
    with open("told", "a") as file:
        print("NAME", web.metadata.name, file=file)
"""


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as started:
        await define_webs(started)
        yield started


class Followed:
    """Runs an operator in a folder whose functions write down what they are called for."""

    def __init__(self, levelog: Levelog, sandbox: Sandbox) -> None:
        self.levelog = levelog
        self.sandbox = sandbox
        self.file = levelog.folder / "operator.py"
        self.file.write_text(OPERATOR)

    @property
    def told(self) -> list[str]:
        """Handler and object of each call."""
        file = self.levelog.folder / "told"
        return file.read_text().splitlines() if file.exists() else []

    def told_to(self, handler: str) -> list[str]:
        """Objects that a handler was called for."""
        return [each.partition(" ")[2] for each in self.told if each.startswith(f"{handler} ")]

    def add(self, name: str) -> None:
        """Write another record handler."""
        with self.file.open("a") as file:
            file.write(HANDLER.replace("NAME", name))

    def create(self, name: str) -> None:
        shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
        shop["metadata"]["name"] = name
        self.sandbox.user.create(shop)

    def _is_folded(self, name: str) -> bool:
        address = f"{(self.levelog.data / 'levelog.db').absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as database:
            return (f"webs.example.com/default/{name}",) in database.execute("SELECT object FROM objects").fetchall()

    async def run(self, *options: str, new: str, told: set[str]) -> None:
        """Run until all this is told, and an object is folded that is made while it runs."""
        with self.levelog.start("run", self.file, *options) as running:
            await running.says("partitions", "owns")
            self.create(new)

            async def are_told() -> bool:
                running.check()
                return told <= set(self.told) and self._is_folded(new)

            await until(are_told, f"{told} told", seconds=60)
            assert await running.stops() == 0


@pytest.fixture
def followed(sandbox: Sandbox, tmp_path: Path) -> Followed:
    return Followed(Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig")), sandbox)


async def test_a_new_handler_begins_in_the_past_and_one_that_has_a_position_keeps_it(followed: Followed) -> None:
    followed.create("old")
    followed.add("first")
    await followed.run(new="a", told={"first old", "first a"})
    followed.add("second")
    await followed.run("--events-from", "1h", new="b", told={"first b", "second old", "second a", "second b"})
    followed.add("third")
    await followed.run(new="c", told={"first c", "second c", "third c"})
    assert sorted(followed.told_to("first")) == ["a", "b", "c", "old"]
    assert sorted(set(followed.told_to("second"))) == ["a", "b", "c", "old"]
    assert followed.told_to("third") == ["c"]


@pytest.mark.parametrize("moment", ["yesterday", "0", "-15m"])
async def test_what_is_no_moment_is_refused_before_anything_starts(followed: Followed, moment: str) -> None:
    told = await followed.levelog.refused("run", followed.file, f"--events-from={moment}", status=2)
    assert told == (
        f"{moment!r} is no moment: write a sequence as in 812, a time as in 2026-11-21T14:05:09Z, "
        "or how long ago as in 15m"
    )
    assert not followed.levelog.data.exists()


async def test_a_sequence_that_the_log_has_not_reached_is_refused(followed: Followed) -> None:
    followed.add("first")
    told = await followed.levelog.refused("run", followed.file, "--events-from", "99999", status=2)
    assert re.fullmatch(r"--events-from 99999: the log ends at record \d+", told)
    await followed.run(new="a", told={"first a"})
