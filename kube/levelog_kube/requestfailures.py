"""The failures of a request to an API server.

LevelogError
├── ApiError          the server answered with a status of 400 or more, and did nothing (409, 422, …)
├── Withheld          nothing was sent: the caller's right to send had ended
└── Unavailable
    ├── Unreachable   the request was never sent
    └── NoAnswer      the request may or may not have taken effect
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from levelog_base.errors import LevelogError, Unavailable

MOST_CHARACTERS: Final = 500
"""Characters kept of an answer that is no Status object; a cut one ends with …"""
MOST_WAIT_SECONDS: Final = 3600.0
"""A server that asks for more is asked again after this."""


class FailureCause(msgspec.Struct, frozen=True, rename="camel"):
    """One reason among several, as for each field of an invalid object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[FailureCause] = []
    retry_after_seconds: float = 0


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(LevelogError):
    """The API server refused a request; it names method, path, HTTP status and the server's reason and message."""

    def __init__(
        self,
        method: str,
        path: str,
        status: int,
        *,
        reason: str = "",
        message: str = "",
        causes: tuple[FailureCause, ...] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(f"{method} {path}: {status} {reason or 'without a reason'}: {message}")
        self.status = status
        self.reason = reason
        """The machine-readable word of the Status object (`AlreadyExists`), empty where the answer is none."""
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        """How long the server asks to wait; None where it does not say."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 429) or self.status >= 500

    @classmethod
    def from_answer(
        cls, method: str, path: str, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> "ApiError":
        """The error in an answer, or in the Status object of a watch's ERROR event."""
        try:
            told = msgspec.json.decode(body, type=_Status)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = body.decode("utf-8", "replace").strip()
            told = _Status(message=text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…")
        details = told.details or _Details()
        wait = _retry_after((headers or {}).get("Retry-After", "")) or (
            _seconds(details.retry_after_seconds) if details.retry_after_seconds else None
        )
        return cls(
            method,
            path,
            status or told.code,
            reason=told.reason,
            message=told.message,
            causes=tuple(details.causes),
            retry_after=wait,
        )


class Withheld(LevelogError):
    """The caller no longer wanted the request when its connection was there; nothing was sent."""


class Unreachable(Unavailable):
    """No connection to the API server could be made; nothing was sent."""


class NoAnswer(Unavailable):
    """The request was sent, but its answer did not arrive: whether it took effect is not known."""


def _retry_after(text: str) -> timedelta | None:
    """Seconds or a date, RFC 9110 section 10.2.3."""
    if text.isascii() and text.isdigit():
        return _seconds(float(text))
    try:
        return _seconds((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _seconds(wait: float) -> timedelta:
    """As long as the server says, within reason."""
    return timedelta(seconds=max(0.0, min(wait, MOST_WAIT_SECONDS)))
