"""Finds the namespaces that patterns take, by a watch of the cluster's namespaces."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Raw

from levelog.absence import level_of
from levelog_base.errors import LevelogError
from levelog_ingest.feed import read_event
from levelog_ingest.recorder import name_of
from levelog_ingest.status import Backoff
from levelog_ingest.sync import list_pages
from levelog_kube.client import KubeClient

log = logging.getLogger(__name__)

_PATH: Final = "/api/v1/namespaces"


def has_patterns(namespaces: Sequence[str]) -> bool:
    """Whether any of them is a pattern: `team-*`, `team-?`, `!kube-*`."""
    return any(set(each) & {"*", "?", "!"} for each in namespaces)


def is_matched(namespace: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern takes a namespace and none that begins with `!` leaves it out; only such take all others."""
    taking = [each for each in patterns if not each.startswith("!")] or ["*"]
    is_left_out = any(fnmatchcase(namespace, each[1:]) for each in patterns if each.startswith("!"))
    return not is_left_out and any(fnmatchcase(namespace, each) for each in taking)


async def matched_namespaces(client: KubeClient, patterns: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
    """All that the patterns take, sorted, again whenever there are more; never none.

    One that is deleted stays, so that the end of its objects is seen: a watch of it has nothing to say.
    """
    backoff, known, told = Backoff(), set[str](), False
    while True:
        try:
            async for found in _seen(client):
                backoff.succeeded()
                more = {name for name in found if is_matched(name, patterns)} - known
                if more:
                    known |= more
                    yield tuple(sorted(known))
                elif not known and not told:
                    told = True
                    log.warning("no namespace matches %s: waits for one", ", ".join(patterns))
        except LevelogError as error:
            log.log(level_of(error), "namespaces cannot be watched: %s", error)
        await asyncio.sleep(backoff.failed().total_seconds())


async def _seen(client: KubeClient) -> AsyncIterator[list[str]]:
    """Names from a list, and then from one watch, some at a time. Raises as `KubeClient.stream`."""
    names, version = list[str](), 0
    async for page in list_pages(client, _PATH):
        version = page.version
        names += _names(page.items)
    yield names
    query = {"watch": "1", "resourceVersion": str(version), "allowWatchBookmarks": "true"}
    async with client.stream(_PATH, query=query) as lines:
        async for some in lines:
            yield _names(event.object for event in map(read_event, some) if event.type in ("ADDED", "MODIFIED"))


def _names(objects: Iterable[Raw]) -> list[str]:
    return [named[1] for each in objects if (named := name_of(bytes(each))) is not None]
