"""`kopf.on.event`: called for each record of the log, as `op.on.event` is, with Kopf's arguments."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from levelog.calls.mappings import plain
from levelog.compat.kopf.attempts import Attempts
from levelog.compat.kopf.failures import meant
from levelog.compat.kopf.given.keywords import Patch
from levelog.compat.kopf.given.memos import forget_memo
from levelog.compat.kopf.kinds.attempted import LONGEST, AttemptedHandler
from levelog.compat.kopf.options import Declaration
from levelog.effects import GiveUp, Retry
from levelog.handlers.fingerprints import fingerprint
from levelog.handlers.injection import Given, Lender
from levelog.handlers.listeners import RecordHandler
from levelog.wire.canonical import digest

_CODE: Final = "kopf events 1"
"""Stands for this module in fingerprints: raised when the same records lead to other calls."""


class WatchingHandler(AttemptedHandler, RecordHandler):
    """A function of a Kopf file that is called for each record of its objects, with keyword arguments."""

    def __init__(
        self,
        name: str,
        declared: Declaration,
        attempts: Attempts,
        lender: Lender,
        *,
        is_alone: Callable[[], bool],
    ) -> None:
        """`is_alone`: no change handler wants what is known of an object after its end."""
        options = {"timeout": LONGEST, "retries": 0, "backoff": None, "writes": None}
        self.take(name, declared.cls, attempts, declared.filters, "found", (attempts.param,), **options)
        self._is_alone = is_alone
        attempts.is_recorded = False
        self.operator = lender.operator
        self.function = self._wrapped(lender.logger(name))
        self._told = ["is_deleted", "origin"]
        self.given = replace(self.given, given={"key": Given.KEY})
        code = fingerprint(attempts.function)
        self.fingerprint = digest(_CODE, code, self.reader.fingerprint, self.given.fingerprint)

    def _event(self, found: Any, origin: str, *, is_deleted: bool) -> dict[str, Any]:
        resource = self.reader.resource
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **plain(found)}
        return {"type": "DELETED" if is_deleted else "MODIFIED" if origin == "watch" else None, "object": body}

    def _wrapped(self, logger: logging.Logger) -> Callable[..., Any]:
        attempts = self.attempts

        def failed(error: Exception) -> None:
            is_odd = not isinstance(meant(error), Retry | GiveUp)
            logger.error("%s failed, which is ignored: %s", attempts.id, error, exc_info=error if is_odd else None)

        def ended(event: Mapping[str, Any], result: Any) -> None:
            if result:
                logger.warning("%s: what a handler of on.event returns, patches or posts is not written", attempts.id)
            if event["type"] == "DELETED" and self._is_alone():
                forget_memo(event["object"])

        def takes(event: Mapping[str, Any]) -> bool:
            when = self.filters.when
            if when is None or not self.filters.is_of_edges:
                return True
            told = {"retry": 0, "started": None, "runtime": timedelta(0), "patch": Patch()}
            return bool(when(**told, **attempts.object_arguments(event["object"]), event=event, type=event["type"]))

        def plain_call(found: Any, key: str, origin: str, *, is_deleted: bool) -> None:
            event = self._event(found, origin, is_deleted=is_deleted)
            try:
                if not takes(event):
                    return
                told = {"event": event, "type": event["type"]}
                result = attempts.run(event["object"], key, 0, datetime.now(UTC), told)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                failed(error)
            else:
                ended(event, result)

        async def async_call(found: Any, key: str, origin: str, *, is_deleted: bool) -> None:
            event = self._event(found, origin, is_deleted=is_deleted)
            try:
                if not takes(event):
                    return
                told = {"event": event, "type": event["type"]}
                result = await attempts.run_async(event["object"], key, 0, datetime.now(UTC), told)
            except Exception as error:  # noqa: BLE001 - as above
                failed(error)
            else:
                ended(event, result)

        made: Callable[..., Any] = async_call if attempts.is_async else plain_call
        made.__name__ = self.name
        return made
