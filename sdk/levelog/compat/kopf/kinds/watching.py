"""`kopf.on.event`: called for each record of the log, as `op.on.event` is, with Kopf's arguments."""

from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

from levelog.compat.kopf.attempts import LONGEST, KopfAdapter
from levelog.compat.kopf.given.keywords import NOT_CALLED, Patch
from levelog.compat.kopf.given.memos import forget_memo
from levelog.compat.kopf.handlererrors import meant
from levelog.effects import GiveUp, Retry


class WatchingAdapter(KopfAdapter):
    """Calls a function of a Kopf file for each record of its objects; what it raises is logged."""

    is_alone: bool = True
    """No change handler wants what is known of an object after its end."""

    @property
    def limits(self) -> dict[str, Any]:
        """A record is handled once."""
        return {"timeout": LONGEST, "retries": 0}

    def hear(self, found: Mapping[str, Any], origin: str, *, is_deleted: bool) -> Any:
        """Call the function for a record."""
        body = self.whole(found)
        event = {"type": "DELETED" if is_deleted else "MODIFIED" if origin == "watch" else None, "object": body}
        with self._ignoring():
            if not self._takes_event(event):
                return None
            result = self.attempt(body, 0, datetime.now(UTC), {"event": event, "type": event["type"]})
            return self._end_later(event, result) if isinstance(result, Coroutine) else self._end_event(event, result)

    def failed(self, error: Exception, call: object) -> NoReturn:  # noqa: ARG002 - nothing is kept of it
        """Raise what the function raised."""
        raise error

    def _takes_event(self, event: Mapping[str, Any]) -> bool:
        when = self.filters.when
        if when is None or not self.filters.is_of_edges:
            return True
        of_object = self.object_arguments(event["object"])
        return bool(when(**NOT_CALLED, patch=Patch(), **of_object, event=event, type=event["type"]))

    async def _end_later(self, event: Mapping[str, Any], result: Coroutine[Any, Any, Any]) -> None:
        with self._ignoring():
            self._end_event(event, await result)

    def _end_event(self, event: Mapping[str, Any], result: Any) -> None:
        if result:
            text = "%s: what a handler of on.event returns, patches or posts is not written"
            self.logger.warning(text, self.id)
        if event["type"] == "DELETED" and self.is_alone:
            forget_memo(event["object"])

    @contextmanager
    def _ignoring(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            is_odd = not isinstance(meant(error), Retry | GiveUp)
            text = "%s failed, which is ignored: %s"
            self.logger.error(text, self.id, error, exc_info=error if is_odd else None)  # noqa: TRY400 - as above
