"""A timer for each Web, and a daemon for each with more than one replica; BENCH_CALLS gets a line for each call.

BENCH_RECORDED says whether calls of the timer leave records; of those that leave none, the line has the due time.
"""

import os
import time
from datetime import datetime, timedelta

from levelog import Operator, Resource, Struct
from levelog.daemons import Daemon

EVERY = timedelta(seconds=float(os.environ["BENCH_EVERY"]))
calls = os.open(os.environ["BENCH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

op = Operator("lasting")


class Spec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: Spec


if os.environ["BENCH_RECORDED"] == "yes":

    @op.timer(every=EVERY)
    async def tick(web: Web) -> None:
        os.write(calls, f"tick {web.metadata.name} {time.time()}\n".encode())

else:

    @op.timer(every=EVERY, recorded=False)
    async def sweep(web: Web, started: datetime) -> None:
        os.write(calls, f"sweep {web.metadata.name} {time.time()} {started.timestamp()}\n".encode())


@op.daemon(when=lambda web: web.spec.replicas > 1)
async def stay(web: Web, daemon: Daemon[Web, int]) -> None:
    os.write(calls, f"stay {web.metadata.name} {time.time()}\n".encode())
    await daemon.stopped()
