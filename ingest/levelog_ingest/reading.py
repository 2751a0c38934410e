"""Keeps one part of a resource flowing, whatever happens to the API server or the network."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from levelog.errors import LevelogError
from levelog_ingest.backoff import Backoff
from levelog_ingest.feed import Expired, Feed
from levelog_ingest.watched import Phase, Progress, ResourceStatus
from levelog_kube.errors import ApiError, NoAnswer, Unreachable

log = logging.getLogger(__name__)

Ended: TypeAlias = Literal["list", "gone"]
"""Why reading ended: all parts have to be listed again, or the resource is no longer served."""

_FORBIDDEN: Final = 403
_FULL_LONGEST: Final = timedelta(seconds=10)  # there may be room before anybody says so
_NOT_FOUND: Final = 404
_SHORT_WATCH_SECONDS: Final = 1.0  # a server that ends watches at once is not asked again at once


class Troubles:
    """What is wrong with a resource: told once until it changes, and waited out."""

    def __init__(self, status: ResourceStatus, on_change: Progress | None) -> None:
        self.backoff = Backoff()
        self.was_away = False
        self._status = status
        self._on_change = on_change
        self._told = ""

    async def pause(self, error: LevelogError) -> None:
        """Tell of an error and wait before the next attempt, at least as long as the server asks for."""
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self.was_away = self.was_away or isinstance(error, (Unreachable, NoAnswer))
        if isinstance(error, ApiError) and error.status == _FORBIDDEN:
            self.tell("forbidden", f"may not list and watch {self._status.watched}: {error.message}")
        else:
            self.tell("retrying", str(error))
        await asyncio.sleep(self.backoff.failed(retry_after).total_seconds())

    async def wait_for_room(self, error: LevelogError) -> None:
        """Wait before the log is tried again that was full, which the log room has told once for all resources."""
        self._status.phase, self._status.detail = "retrying", str(error)
        if self._on_change is not None:
            self._on_change(self._status)
        await asyncio.sleep(min(self.backoff.failed(), _FULL_LONGEST).total_seconds())

    def tell(self, phase: Phase, detail: str) -> None:
        """Note what is wrong, and log it once until it changes."""
        self._status.phase, self._status.detail = phase, detail
        if detail != self._told:
            self._told = detail
            level = logging.ERROR if phase == "forbidden" else logging.WARNING
            log.log(level, "%s", detail, extra={"resource": str(self._status.watched)})
        if self._on_change is not None:
            self._on_change(self._status)

    def over(self) -> None:
        """All is well."""
        self._told = ""
        self.backoff.succeeded()


class Reading:
    """Reads one part for ever; errors of the log end it, since then nobody knows what is in there."""

    def __init__(
        self, troubles: Troubles, *, check_cluster: Callable[[], Awaitable[None]], baseline_every: timedelta | None
    ) -> None:
        self._troubles = troubles
        self._check_cluster = check_cluster
        self._baseline_every = baseline_every
        self._has_expired = False

    async def run(self, feed: Feed) -> Ended:
        """Read until all parts have to be listed, or the resource is not served. Raises what the log refuses."""
        troubles = self._troubles
        while True:
            if feed.is_listed and feed.sync.is_older_than(self._baseline_every):
                log.info("listing again, so that the log holds a complete list", extra={"part": feed.part})
                return "list"
            began = time.monotonic()
            try:
                if troubles.was_away:
                    await self._check_cluster()  # the same address may lead to another cluster now
                    troubles.was_away = False
                has_heard = await feed.read()
            except Expired as error:
                await feed.note_gap(str(error))
                if self._has_expired:
                    await troubles.pause(error)
                self._has_expired = True
                return "list"
            except (Unreachable, NoAnswer, ApiError) as error:
                if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                    log.warning("no longer served: %s", error.message or error.reason, extra={"part": feed.part})
                    return "gone"
                if time.monotonic() - began > _SHORT_WATCH_SECONDS:
                    troubles.backoff.succeeded()
                await troubles.pause(error)
                if feed.is_half_listed:
                    return "list"
                continue
            self._has_expired = False
            troubles.over()
            if not has_heard and time.monotonic() - began < _SHORT_WATCH_SECONDS:
                await asyncio.sleep(troubles.backoff.failed().total_seconds())
