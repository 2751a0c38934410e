"""Load from a process of its own: Webs change at a steady rate, and each change is timed until its status is seen.

`python -m bench.load KUBECONFIG NAMESPACE OBJECTS CHANGES RATE FIRST` asks for FIRST, FIRST + 1, … replicas, one change
after the other over the objects; RATE 0 sends as fast as the API server answers. Prints one JSON object: see `Timed`.
"""

import asyncio
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Final

import msgspec
import uvloop
from msgspec import Struct

from bench.servers import MERGE_PATCH, PATIENCE, web_name, webs_of
from levelog_kube.client import KubeClient, connect

LATE_SECONDS: Final = 120.0
AT_ONCE: Final = 64
"""Changes that wait for their answer at the same time."""


class Timed(Struct, frozen=True, kw_only=True):
    """Milliseconds from sending a change to its status, and seconds from the first change sent to the last one seen."""

    p50: float
    p99: float
    seconds: float
    sent_seconds: float
    """From the first change to the last answer: more than asked for where the API server is the limit."""
    sent_at: list[float]
    """When each change was sent, in seconds since the epoch."""
    answered: list[float]
    """Milliseconds from sending each change to the API server's answer."""
    seen: list[float]
    """And to its status."""


class _Web(Struct):
    class Metadata(Struct, rename="camel"):
        name: str
        resource_version: str

    class Status(Struct, frozen=True):
        replicas: int = 0

    metadata: Metadata
    status: Status = Status()


class _Event(Struct):
    object: _Web


class _List(Struct):
    class Metadata(Struct, rename="camel"):
        resource_version: str

    metadata: Metadata


_event = msgspec.json.Decoder(_Event)


async def load(client: KubeClient, webs: str, objects: int, changes: int, rate: float, first: int) -> Timed:
    """Send the changes and wait for all. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    sent: dict[int, float] = {}
    seen: dict[int, float] = {}
    answered: dict[int, float] = {}
    is_done = asyncio.Event()
    places = asyncio.Semaphore(AT_ONCE)

    async def change(number: int) -> None:
        path = f"{webs}/{web_name(number % objects)}"
        body = msgspec.json.encode({"spec": {"replicas": first + number}})
        sent[number] = loop.time()
        await client.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=PATIENCE)
        answered[number] = loop.time() - sent[number]
        places.release()

    async def watch(version: str) -> None:
        while True:  # a busy API server ends the watch of a client that reads too slowly
            async with client.stream(webs, query={"watch": "1", "resourceVersion": version}) as chunks:
                async for lines in chunks:
                    at = loop.time()
                    for line in lines:
                        web = _event.decode(line).object
                        version = web.metadata.resource_version
                        shown = web.status.replicas - first
                        # What a later change of the same object replaced was done with it.
                        while shown in sent and shown not in seen:
                            seen[shown] = at
                            shown -= objects
                        if len(seen) == changes:
                            is_done.set()

    listed = (await client.request("GET", webs, query={"limit": "1"})).decode(_List)
    watching = asyncio.create_task(watch(listed.metadata.resource_version))
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(changes):
            if rate and (wait := began + number / rate - loop.time()) > 0:
                await asyncio.sleep(wait)
            await places.acquire()
            tasks.create_task(change(number))
    sent_seconds = loop.time() - began
    done = asyncio.create_task(is_done.wait())
    try:
        await asyncio.wait((done, watching), timeout=LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        if not done.done():
            missing = sorted(sent.keys() - seen.keys())
            raise TimeoutError(f"{len(missing)} of {changes} changes have no status, as number {missing[0]}")
    finally:
        watching.cancel()
        done.cancel()
    took = sorted(seen[number] - sent[number] for number in seen)
    cuts = quantiles(took, n=100)
    epoch = time.time() - loop.time()
    return Timed(
        p50=cuts[49] * 1000,
        p99=cuts[98] * 1000,
        seconds=max(seen.values()) - began,
        sent_seconds=sent_seconds,
        sent_at=[epoch + sent[number] for number in range(changes)],
        answered=[answered[number] * 1000 for number in range(changes)],
        seen=[(seen[number] - sent[number]) * 1000 for number in range(changes)],
    )


async def main() -> None:
    """Run as a process."""
    kubeconfig, namespace, objects, changes, rate, first = sys.argv[1:]
    async with await connect(Path(kubeconfig)) as client:
        timed = await load(client, webs_of(namespace), int(objects), int(changes), float(rate), int(first))
    sys.stdout.buffer.write(msgspec.json.encode(timed))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
