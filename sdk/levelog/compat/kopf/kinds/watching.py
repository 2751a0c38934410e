"""`kopf.on.event`: called for each record of the log, as `op.on.event` is, with Kopf's arguments."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from levelog.compat.kopf.attempts import Attempts
from levelog.compat.kopf.failures import meant
from levelog.compat.kopf.given.keywords import NOT_CALLED, Patch
from levelog.compat.kopf.given.memos import forget_memo
from levelog.compat.kopf.kinds.declaring import LONGEST, AttemptedHandler
from levelog.effects import GiveUp, Retry
from levelog.handlers.forobjects import RecordHandler
from levelog.handlers.injection import Lender

_CODE: Final = "kopf events 1"
"""Stands for this module in fingerprints: raised when the same records lead to other calls."""


class WatchingHandler(AttemptedHandler, RecordHandler):
    """A function of a Kopf file that is called for each record of its objects, with keyword arguments."""

    def __init__(
        self,
        name: str,
        attempts: Attempts,
        lender: Lender,
        *,
        is_alone: Callable[[], bool],
    ) -> None:
        """`is_alone`: no change handler wants what is known of an object after its end."""
        options = {"timeout": LONGEST, "retries": 0, "backoff": None, "writes": None}
        self.take(name, attempts, "found", (_CODE, attempts.declared.param), **options)
        self._is_alone = is_alone
        attempts.is_recorded = False
        self.operator = lender.operator
        self.function = self._run
        self._told = ["is_deleted", "origin"]
        self.given = replace(self.given, given={})

    def _event(self, found: Any, origin: str, *, is_deleted: bool) -> dict[str, Any]:
        kind = "DELETED" if is_deleted else "MODIFIED" if origin == "watch" else None
        return {"type": kind, "object": self.handed(found)}

    def _takes_event(self, event: Mapping[str, Any]) -> bool:
        when = self.filters.when
        if when is None or not self.filters.is_of_edges:
            return True
        of_object = self.attempts.object_arguments(event["object"])
        return bool(when(**NOT_CALLED, patch=Patch(), **of_object, event=event, type=event["type"]))

    def _run(self, found: Any, origin: str, *, is_deleted: bool) -> Any:
        event = self._event(found, origin, is_deleted=is_deleted)
        with self._ignoring():
            if not self._takes_event(event):
                return None
            told = {"event": event, "type": event["type"]}
            result = self.attempts.run(event["object"], 0, datetime.now(UTC), told)
            return self._end_later(event, result) if isinstance(result, Coroutine) else self._end(event, result)

    async def _end_later(self, event: Mapping[str, Any], result: Coroutine[Any, Any, Any]) -> None:
        with self._ignoring():
            self._end(event, await result)

    def _end(self, event: Mapping[str, Any], result: Any) -> None:
        if result:
            text = "%s: what a handler of on.event returns, patches or posts is not written"
            self.attempts.logger.warning(text, self.attempts.id)
        if event["type"] == "DELETED" and self._is_alone():
            forget_memo(event["object"])

    @contextmanager
    def _ignoring(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            is_odd, attempts = not isinstance(meant(error), Retry | GiveUp), self.attempts
            text = "%s failed, which is ignored: %s"
            attempts.logger.error(text, attempts.id, error, exc_info=error if is_odd else None)  # noqa: TRY400 - as above
