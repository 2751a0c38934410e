"""How many levels are evaluated when one of many pods changes: one, that of its group."""

import asyncio

import msgspec
from rich.console import Console
from rich.table import Table
from sqlalchemy import select

from bench.installation import Installation
from bench.kopfprocess import OPERATORS
from bench.servers import PATIENCE, Servers, web_name
from levelog_store.tables import levels

JSON_PATCH = "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"


async def run(servers: Servers, console: Console, groups: int, pods: int) -> None:
    """Create pods in groups, change one pod and then one of each group, and print the calls."""

    async def create(number: int) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number:05}", "labels": {"group": web_name(number % groups)}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}], "automountServiceAccountToken": False},
        }
        await servers.client.request("POST", PODS, body=msgspec.json.encode(pod), timeout=PATIENCE)

    async def change(number: int, image: str) -> None:
        patch = msgspec.json.encode([{"op": "replace", "path": "/spec/containers/0/image", "value": image}])
        path = f"{PODS}/pod-{number:05}"
        await servers.client.request("PATCH", path, body=patch, content_type=JSON_PATCH, timeout=PATIENCE)

    there = len(await servers.statuses())
    await servers.create_webs(max(0, groups - there), first=there)
    await servers.for_each(range(pods), create)
    async with Installation(servers, OPERATORS / "groups.py") as levelog:
        levelog.start("ingest", "process")
        await _until_shown(levelog, "nginx:1", pods)
        table = Table(title=f"{pods} pods in {groups} groups", title_justify="left")
        for name in ("pods that change", "levels evaluated"):
            table.add_column(name, justify="right")
        for changing, image in (([0], "nginx:2"), (range(groups), "nginx:3")):
            before = await levelog.calls()
            for number in changing:
                await change(number, image)
            await _until_shown(levelog, image, len(changing))
            table.add_row(str(len(changing)), str(await levelog.calls() - before))
    console.print(table)


async def _until_shown(levelog: Installation, image: str, count: int) -> None:
    """Wait until the levels name an image so many times."""
    async with asyncio.timeout(300):
        while True:
            levelog.check()
            async with levelog.database.reading() as connection:
                shown = (await connection.execute(select(levels.c.actual))).scalars()
                if sum(actual.count(f'"{image}"'.encode()) for actual in shown if actual) == count:
                    return
            await asyncio.sleep(0.05)
