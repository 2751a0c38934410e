"""Results of an attempt to write or to call: the intent has ended, or is tried again later; and who hears of that."""

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from levelog_base.errors import RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import storable
from levelog_base.wire.envelope import refuse_unreadable
from levelog_base.wire.objects import Application, ObjectKey, Uid, field_manager
from levelog_base.wire.projection import Applied
from levelog_base.wire.records import CallNoted, Outcome, PatchNoted, ReceiptNoted
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.outcomes import Postponement

log = logging.getLogger(__name__)

MOST_ERROR_CHARACTERS: Final = 1000


class Ended(Struct, frozen=True, kw_only=True):
    """The final result of an intent."""

    intent: ClaimedIntent
    outcome: Outcome
    uid: str = ""
    version: int = 0
    error: str = ""
    answer: int = 0
    """HTTP status of the last answer to the write under this claim; 0: none came, or nothing was sent.

    422 stands for a 500 that refuses what was sent.
    """
    applied: Applied | None = None
    """What the server made of the manifest, where the intent asks for it."""
    call: CallNoted | None = None
    """What an effect was asked and returned."""
    patches: tuple[PatchNoted, ...] = ()
    """What was written with it."""
    found: Mapping[str, Any] | None = None
    """After a conflict, the target as it was read; after a write for a call, as the API answered it."""

    def receipt(self, application: Application, time: datetime, process: str) -> ReceiptNoted:
        """The record of it for the log; of a result that the log cannot hold, that the intent failed."""
        intent = self.intent
        noted = ReceiptNoted(
            application=application,
            key=intent.key,
            view=intent.view,
            parent=ObjectKey.parse(intent.parent),
            parent_uid=Uid(intent.parent_uid),
            round=intent.round,
            verb=intent.verb,
            target=ObjectKey.parse(intent.target),
            outcome=self.outcome,
            target_uid=storable(self.uid),
            target_version=self.version,
            error=storable(self.error[:MOST_ERROR_CHARACTERS]),
            answer=self.answer,
            attempts=intent.attempts,
            manager=field_manager(intent.view.partition("/")[0]),
            process=process,
            applied=self.applied,
            call=self.call,
            patches=self.patches,
            time=time,
        )
        try:
            refuse_unreadable(noted)
        except RecordError as error:
            log.error("its result cannot be recorded: %s", error, extra=about(intent))  # noqa: TRY400 - the message says it
            text = f"its result cannot be recorded: {error}"
            return replace(noted, outcome="failed", target_version=0, error=text, applied=None, call=None, patches=())
        return noted


class Later(Struct, frozen=True, kw_only=True):
    """An intent that has to be claimed again."""

    intent: ClaimedIntent
    delay: timedelta
    error: str
    is_doubtful: bool
    """A request may have taken effect."""
    is_counted: bool = True
    """It used up an attempt."""
    is_unreachable: bool = False
    """No connection to the server could be made."""
    is_throttled: bool = False
    """The API has too much to do, so that nothing of the group is to be sent before the delay is over."""

    @classmethod
    def unsent(cls, intent: ClaimedIntent, why: str, delay: timedelta = timedelta(0)) -> "Later":
        """Give an intent back that nothing was sent for under this claim."""
        error = f"not sent: {why}"
        return cls(intent=intent, delay=delay, error=error, is_doubtful=intent.is_doubtful, is_counted=False)

    @property
    def postponement(self) -> Postponement:
        """How the row is changed."""
        return Postponement(
            key=self.intent.key,
            claim=self.intent.claim,
            delay=self.delay,
            error=storable(self.error[:MOST_ERROR_CHARACTERS]),
            attempts=self.intent.attempts - (not self.is_counted),
            is_doubtful=self.is_doubtful,
        )


Result: TypeAlias = Ended | Later

Attempting: TypeAlias = Callable[[ClaimedIntent], AbstractContextManager[Callable[[Result], None]]]
"""A context around each attempt, which gets its result."""


def unwatched(intent: ClaimedIntent) -> AbstractContextManager[Callable[[Result], None]]:  # noqa: ARG001
    """A context that ignores the result, which is stored all the same."""
    return nullcontext(lambda _: None)


class Observers(Struct, eq=False):
    """What metrics and traces hear of an actuator."""

    attempting: Attempting = unwatched
    """The context of each attempt to write or to call."""
    on_taken: Callable[[Sequence[ReceiptNoted], Sequence[Later]], None] = lambda *_: None
    """Gets receipts, and results that are tried again."""


def about(intent: ClaimedIntent) -> dict[str, object]:
    """What log lines about an intent are found by."""
    target = intent.parent if intent.verb == "call" else intent.target
    return {"object": target, "intent": intent.key, "view": intent.view, "attempts": intent.attempts}


def told_without_secrets(intent: ClaimedIntent, error: Exception, redactor: Redactor) -> str:
    """The text of an error that nobody has foreseen, once it is in the process's log."""
    text = redactor.redact_text(f"{type(error).__name__}: {error}")
    log.error("an intent cannot be carried out: %s", text, extra=about(intent))
    log.debug("%s", redactor.redact_text("".join(traceback.format_exception(error))), extra=about(intent))
    return text
