"""Renders: a film is rendered by a farm elsewhere, which takes an hour; a daemon follows the job, a status tells of it.

Run it with `FARM_URL=http://127.0.0.1:8080 levelog run examples/renders/renders.py` after `kubectl apply -f
examples/renders/crd.yaml`.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any, Literal
from urllib.parse import urlsplit

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Resource, Struct, patch_status
from levelog.daemons import Daemon, Run, RunEnd


class Settings(Struct, frozen=True):
    farm: str
    poll: timedelta


farm = os.environ.get("FARM_URL", "http://127.0.0.1:8080")
poll = timedelta(seconds=float(os.environ.get("FARM_POLL", "10")))
op = Operator("renders", settings=Settings(farm, poll))

Phase = Literal["Rendering", "Done"]


class RenderSpec(Struct):
    scene: str
    paused: bool = False


class RenderStatus(Struct):
    phase: Phase | None = None


class Render(Resource, group="example.com", version="v1", plural="renders"):
    spec: RenderSpec
    status: RenderStatus = RenderStatus()


class Job(Struct):
    """What a run knows of its job at the farm."""

    id: str
    frames: int = 0


@op.daemon(when=lambda render: not render.spec.paused, backoff=timedelta(seconds=5))
async def follow(render: Render, daemon: Daemon[Render, Job], idempotency_key: str, settings: Settings) -> None:
    """Start the job, under a key by which the farm starts it once, and look after it until it is done or not wanted."""
    job = daemon.state
    if job is None:
        answer = await ask(settings, "PUT", f"/jobs/{idempotency_key}", {"scene": render.spec.scene})
        job = Job(id=answer["id"])
        await daemon.save(job)
    while await daemon.sleep(settings.poll):
        answer = await ask(settings, "GET", f"/jobs/{job.id}")
        if answer["state"] == "failed":
            raise GiveUp(f"the farm says: {answer['message']}")
        if answer["frames"] != job.frames:
            job = Job(id=job.id, frames=answer["frames"])
            await daemon.save(job)
        if answer["state"] == "done":
            return
    if daemon.reason == "unwanted":  # deleted, or paused: the farm goes on with what it is told again
        await ask(settings, "POST", f"/jobs/{job.id}/pause")


@op.view
def phase(render: Render, follow_runs: Index[str, Call[Run, RunEnd | None]]) -> Level[Phase | None]:
    """Done once a run has returned by itself."""
    runs = list(follow_runs[render.metadata.uid])
    is_done = any(each.result is not None and each.result.is_finished for each in runs)
    return Level(desired="Done" if is_done else "Rendering", actual=render.status.phase)


@op.reconcile(phase, writes={Render: ["patch_status"]})
def show(render: Render, level: Level[Phase | None]) -> Iterator[Intent]:
    yield patch_status(render, {"phase": level.desired})


async def ask(settings: Settings, method: str, path: str, body: Any = None) -> Any:
    """One request to the farm, in a thread: a daemon shares its event loop with all others."""
    return await asyncio.to_thread(_ask, settings.farm, method, path, body)


def _ask(farm: str, method: str, path: str, body: Any) -> Any:
    url = urlsplit(farm)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=10)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise ConnectionError(f"the farm answers {answer.status} to {method} {path}")
        return json.loads(content)
    finally:
        connection.close()
