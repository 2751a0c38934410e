"""What one parent of many children leaves in the tables: intents, rounds, decisions and their bytes."""

import asyncio
import time

import msgspec
from rich.console import Console
from rich.table import Table
from sqlalchemy import Text, cast, func, select

from bench.programs import OPERATORS, running, split
from bench.servers import WEBS, Servers
from levelog_store.connect.database import Database
from levelog_store.tables import decisions, intents, levels

PATIENCE_SECONDS = 1800
NAME = "many"
KEPT = ("reads", "desired", "actual", "drift", "intents", "basis")
"""What grows with the children of what a decision keeps."""


async def run(servers: Servers, console: Console, children: int) -> None:
    """Create a Web of many children, wait until its level is in sync, and print what that left."""
    synced = select(func.count()).select_from(levels).where(levels.c.status == "in_sync")
    async with (
        running(servers, split(OPERATORS / "children.py")) as programs,
        await Database.open(programs.database_url, read_only=True) as database,
    ):
        metadata, spec = {"name": NAME}, {"image": "a", "replicas": children}
        web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec}
        await servers.client.request("POST", WEBS, body=msgspec.json.encode(web))
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_SECONDS):
            is_synced = 0
            while not is_synced:
                programs.check()
                await asyncio.sleep(0.2)
                async with database.reading() as connection:
                    is_synced = (await connection.execute(synced)).scalar_one()
        seconds = time.monotonic() - began
        size = sum(func.coalesce(func.length(cast(decisions.c[name], Text)), 0) for name in KEPT)
        async with database.reading() as connection:
            asked = (await connection.execute(select(func.count()).select_from(intents))).scalar_one()
            rounds = (await connection.execute(select(func.max(levels.c.round)))).scalar_one()
            made, kept = (await connection.execute(select(func.count(), func.sum(size)).select_from(decisions))).one()
    await servers.client.request("DELETE", f"{WEBS}/{NAME}")
    table = Table(title=f"one parent of {children} children", title_justify="left")
    for name in ("what", "value"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for what, value in (("intents", asked), ("rounds", rounds), ("decisions", made), ("bytes of these", kept)):
        table.add_row(what, f"{value:,}")
    table.add_row("until the level is in sync", f"{seconds:.1f} s")
    console.print(table)
