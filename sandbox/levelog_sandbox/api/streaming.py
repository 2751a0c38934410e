"""A watch over HTTP: where it starts, what it shows first, bookmarks, and its end."""

import asyncio
import math
import random
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from levelog_sandbox.api import forms, refusals
from levelog_sandbox.api.exchange import Exchange, accepted
from levelog_sandbox.api.urltargets import RequestTarget, is_true
from levelog_sandbox.objects import pages
from levelog_sandbox.objects.pages import Matches
from levelog_sandbox.objects.revisions import ENCODER, watch_line
from levelog_sandbox.objects.watcher import WatchQueue, bookmark_line, error_line

Json = dict[str, Any]

# Origin: --min-request-timeout of kube-apiserver; a watch without timeoutSeconds ends between one and two times this.
LEAST_SECONDS: Final = 1800
CHUNK_LINES: Final = 512
# Origin: nextBookmarkTime in the watch cache of k8s.io/apiserver: the last bookmark comes 2 s before the deadline.
LAST_BOOKMARK_SECONDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of a watch; `from_revision` 0 means the current state first, `initial_events` None: not given."""

    form: forms.Form
    matches: Matches | None
    from_revision: int
    initial_events: bool | None
    seconds: float
    bookmark_seconds: float | None


def read_wish(exchange: Exchange, at: RequestTarget, bookmark_seconds: float) -> Wish:
    """The wish in a request's query. Raises `StatusError` 400, 406, 422, 500."""
    query = exchange.query
    has_bookmarks = is_true(query.get("allowWatchBookmarks", "false"))
    seconds = pages.number(query.get("timeoutSeconds", "")) or LEAST_SECONDS * (1 + random.random())  # noqa: S311
    return Wish(
        form=accepted(exchange),
        matches=pages.selection(at.resource, query),
        from_revision=pages.version_number(query.get("resourceVersion") or "0"),
        initial_events=_initial_events(exchange),
        seconds=seconds,
        bookmark_seconds=bookmark_seconds if has_bookmarks else None,
    )


def _initial_events(exchange: Exchange) -> bool | None:
    """The parameter sendInitialEvents, checked against its companion."""
    text, match = exchange.query.get("sendInitialEvents"), exchange.query.get("resourceVersionMatch")
    if text is None:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise pages.bad_options("resourceVersionMatch", why)
        return None
    if match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise pages.bad_options("resourceVersionMatch", why)
    return is_true(text)


async def stream(exchange: Exchange, at: RequestTarget, bookmark_seconds: float) -> web.StreamResponse:
    """Answer a watch until its time is up, it is ended, or the client leaves.

    Raises `StatusError` before anything is sent; a compacted revision is told in an ERROR event.
    """
    wish = read_wish(exchange, at, bookmark_seconds)
    cluster = exchange.cluster
    collection = cluster.store.collection(at.resource.storage)
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    with WatchQueue(collection, at.resource, at.namespace, wish.matches, at.name) as watcher:
        if wish.initial_events or (wish.initial_events is None and not wish.from_revision):
            watcher.send_initial(list(collection.in_order()))
            if wish.initial_events and wish.bookmark_seconds:
                watcher.send(bookmark_line(at.resource, cluster.store.revision, ends_initial_events=True))
        elif wish.from_revision and wish.from_revision < collection.compacted:
            message = f"too old resource version: {wish.from_revision} ({collection.compacted})"
            watcher.send(error_line(refusals.expired(message)))
            watcher.end()
        else:
            for change in collection.since(wish.from_revision or cluster.store.revision):
                watcher.offer(change)
        cluster.watchers.add(watcher)
        try:
            await response.prepare(exchange.request)
            exchange.log(200)
            await _pump(response, watcher, exchange, at, wish)
        except ConnectionError:
            pass  # the client left, which is how most watches end
        finally:
            cluster.watchers.discard(watcher)
    return response


async def _pump(
    response: web.StreamResponse, watcher: WatchQueue, exchange: Exchange, at: RequestTarget, wish: Wish
) -> None:
    """Write lines as they come, and bookmarks when the server would."""
    clock = asyncio.get_running_loop().time
    end = clock() + wish.seconds
    next_bookmark = _next_bookmark(clock(), end, wish.bookmark_seconds)
    while True:
        await watcher.wait(min(end, next_bookmark))
        lines = watcher.take()
        now = clock()
        if now >= next_bookmark and not watcher.is_ended:
            lines.append(bookmark_line(at.resource, exchange.cluster.store.revision))
            next_bookmark = _next_bookmark(now, end, wish.bookmark_seconds)
        if wish.form == "table":
            lines = [_as_row(line, at) for line in lines]
        for start in range(0, len(lines), CHUNK_LINES):
            await response.write(b"".join(lines[start : start + CHUNK_LINES]))
        if watcher.is_ended or now >= end:
            break
    await response.write_eof()


def _next_bookmark(now: float, end: float, seconds: float | None) -> float:
    """When the next one is due: after the interval, but once shortly before the end; infinite for none."""
    if seconds is None:
        return math.inf
    due = min(now + seconds, end - LAST_BOOKMARK_SECONDS)
    return due if due > now else math.inf


def _as_row(line: bytes, at: RequestTarget) -> bytes:
    """An event with its object as a Table of one row."""
    event: Json = msgspec.json.decode(line)
    body = event["object"]
    if event["type"] == "ERROR":
        return line
    version = {"resourceVersion": body["metadata"]["resourceVersion"]}
    rows = [] if event["type"] == "BOOKMARK" else [body]
    return watch_line(event["type"], ENCODER.encode(forms.table(at.resource, rows, version)))
