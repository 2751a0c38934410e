"""A process that leases partitions and commits under them: `python -m rigs.leaser URL OWNER SECONDS`.

It rests for so many seconds after each commit, in the midst of its partitions; with 0 it is as fast as it can.

Each commit writes its epoch as the checkpoint of its partition. It prints a line for each change of its leases, and
`REVERTED` should it ever find, in a transaction that its guard let through, that a later epoch has committed before.
"""

import asyncio
import random
import sys
from datetime import timedelta

from sqlalchemy import select, update

from levelog_base.errors import LeaseLost, Unavailable
from levelog_store.connect import engines
from levelog_store.connect.database import Database
from levelog_store.owners.leases import Leases, guard
from levelog_store.rows import Scope
from levelog_store.tables import checkpoints
from rigs.leasing import scope_of

DURATION = timedelta(seconds=1)
engines.IDLE_SECONDS = 3  # how long a session is left alone whose process stands still


async def commit(database: Database, scope: Scope, partition: int, epoch: int) -> None:
    async with database.transaction(durable=False) as connection:
        await guard(connection, scope, {partition: epoch})
        mine = (checkpoints.c.scope == scope.number, checkpoints.c.partition == partition)
        committed = await connection.scalar(select(checkpoints.c.sequence).where(*mine))
        if committed is None or committed > epoch:
            print(f"REVERTED partition {partition} from epoch {committed} to {epoch}", flush=True)
        await connection.execute(update(checkpoints).where(*mine).values(sequence=epoch, record_sequence=epoch))


async def main(url: str, owner: str, rest: float) -> None:
    async with await Database.open(url) as database:
        scope = await scope_of(database)
        leases = Leases(database, scope, owner=owner, duration=DURATION)
        while True:
            try:
                await work(database, scope, leases, rest)
            except Unavailable as error:
                print("UNAVAILABLE", error, flush=True)


async def work(database: Database, scope: Scope, leases: Leases, rest: float) -> None:
    loop = asyncio.get_running_loop()
    held: dict[int, int] = {}
    due = loop.time()
    while True:
        if loop.time() >= due:
            found = await leases.tend()
            if found != held:
                print("HOLDS", *found, flush=True)
            held, due = found, loop.time() + 0.1
        for partition in random.sample(sorted(held), len(held)):
            try:
                await commit(database, scope, partition, held[partition])
            except LeaseLost:
                print("LOST", partition, flush=True)
                del held[partition]
            await asyncio.sleep(rest)
        if not held:
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
