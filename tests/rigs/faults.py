"""What can go wrong with a request to an API server, and rules that say with which one it does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rigs.apirequests import ApiRequest, Where
from rigs.hangups import HangUp
from rigs.waiting import until

Stage = Literal["request", "answer"]
"""Before anything is forwarded, or when the server's answer is here and nothing of it was passed on."""

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Answer with a Status; nothing is forwarded. `retry_after` is in seconds, a header and in the details."""

    code: int
    reason: str = ""
    message: str = "the fault proxy refuses"
    retry_after: int | None = None

    def status(self) -> dict[str, Any]:
        """The Status object."""
        reason = self.reason or _REASONS[self.code]
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        details = {} if self.retry_after is None else {"details": {"retryAfterSeconds": self.retry_after}}
        return {**head, "message": self.message, "reason": reason, **details, "code": self.code}


@dataclass(frozen=True, kw_only=True)
class FailBefore:
    """Close the connection; nothing is forwarded."""

    how: HangUp = "fin"


@dataclass(frozen=True, kw_only=True)
class FailAfter:
    """Forward the request, read the server's answer, and close the connection without a byte of it."""

    how: HangUp = "fin"


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Go on only when the rule is released; a rule that never is makes the client time out."""

    stage: Stage


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Call a function, such as one that kills a process, and go on, or close the connection if it `is_last`.

    Nothing else of the proxy runs meanwhile.
    """

    call: Callable[[], None]
    stage: Stage
    is_last: bool = False


@dataclass(frozen=True)
class ForwardTwice:
    """Forward the request twice, one after the other, and pass on the second answer: a retry on the way."""


@dataclass(frozen=True, kw_only=True)
class DropWatch:
    """End a watch after so many lines: `end` is the end of the body, as after the server's time limit."""

    after_lines: int = 0
    how: HangUp | Literal["end"] = "end"


@dataclass(frozen=True, kw_only=True)
class StallWatch:
    """After so many lines a watch passes on nothing until the rule is released; its connection stays open."""

    after_lines: int = 0


@dataclass(frozen=True, kw_only=True)
class ExpireWatch:
    """After so many lines a watch gets an ERROR event of code 410, and ends."""

    after_lines: int = 0


@dataclass(frozen=True, kw_only=True)
class CutLine:
    """After so many lines a watch gets the first half of the next one, and its connection is closed."""

    after_lines: int = 0
    how: HangUp = "fin"


@dataclass(frozen=True, kw_only=True)
class InjectLines:
    """After so many lines a watch gets lines that the server did not send."""

    lines: tuple[bytes, ...]
    after_lines: int = 0


Action = (
    Refuse
    | FailBefore
    | FailAfter
    | Hold
    | Strike
    | ForwardTwice
    | DropWatch
    | StallWatch
    | ExpireWatch
    | CutLine
    | InjectLines
)


class Rule:
    """An action and the requests that it is for: from the nth that matches, so many of them (None: all).

    `applied` are the requests with which the action was carried out: what it says has happened by then.
    """

    def __init__(self, action: Action, where: Where, *, nth: int = 1, times: int | None = 1) -> None:
        self.action = action
        self.applied: list[ApiRequest] = []
        self._where = where
        self._matches = 0
        self._first = nth
        self._last = None if times is None else nth + times - 1
        self._released = asyncio.Event()

    def takes(self, request: ApiRequest) -> bool:
        """Whether the action is for this request; each is asked about once."""
        if not self._where(request):
            return False
        self._matches += 1
        return self._matches >= self._first and (self._last is None or self._matches <= self._last)

    def release(self) -> None:
        """Let go of what is held or stalled, now and from now on."""
        self._released.set()

    async def released(self) -> None:
        """Wait until `release` was called."""
        await self._released.wait()

    async def until_applied(self, times: int = 1, *, seconds: float = 90.0, where: str = "") -> ApiRequest:
        """Wait until it was carried out so many times; return the request of the last. `where` is told if it is not."""
        await until(
            lambda: len(self.applied) >= times, f"{where or self.action} carried out {times} times", seconds=seconds
        )
        return self.applied[times - 1]
