"""Calls start-up and clean-up handlers, until they succeed or give up."""

import itertools
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from levelog.compat.kopf.failures import HandlerTimeoutError, TryLimits, judged


class HookAttempt:
    """One call, with its arguments, and how long to wait before the next one."""

    def __init__(self, limits: TryLimits, backoff: timedelta, kwargs: dict[str, Any]) -> None:
        self.kwargs = kwargs
        self.wait_seconds = 0.0
        self.is_over = False
        """It failed, which is ignored."""
        self._limits = limits
        self._backoff = backoff

    @contextmanager
    def trying(self) -> Generator[None]:
        """Take what the call raises, if another one follows. Raises what ends it."""
        limits, logger = self._limits, self.kwargs["logger"]
        try:
            yield
        except Exception as raised:
            found = judged(raised, limits, self.kwargs["retry"] + 1, self._backoff)
            if found.is_ignored:
                self.is_over = True
                logger.exception("failed, which is ignored")
                return
            if found.is_final:
                raise found.error from found.error.__cause__
            if limits.timeout is not None and datetime.now(UTC) + found.delay - self.kwargs["started"] > limits.timeout:
                raise HandlerTimeoutError(f"has timed out after {limits.timeout}: {found.error}") from found.error
            self.wait_seconds = found.delay.total_seconds()
            logger.warning("is called again in %s: %s", found.delay, found)


def hook_attempts(limits: TryLimits, backoff: timedelta, told: Mapping[str, Any]) -> Iterator[HookAttempt]:
    """Calls without end, of which the caller takes as many as it needs."""
    began = datetime.now(UTC)
    for retry in itertools.count():
        kwargs = {**told, "retry": retry, "started": began, "runtime": datetime.now(UTC) - began}
        yield HookAttempt(limits, backoff, kwargs)
