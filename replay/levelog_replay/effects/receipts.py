"""The outcomes of recorded calls, read from receipts in the log."""

from collections.abc import Collection
from typing import Any

from msgspec import UNSET, Struct

from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import effect_of
from levelog_base.wire.records import ReceiptNoted
from levelog_history.records import Recording


class Came(Struct, frozen=True, kw_only=True):
    """The outcome of a call."""

    result: bytes = b""
    """The part of the returned value that is kept, canonical JSON; empty: it raised."""
    error: str = ""
    """As it is recorded, after the attempt that was the last."""
    refused: str = ""
    """The kind of I/O that it was refused, so that the rest says nothing; empty: it did none."""
    what: str = ""
    """The I/O that was refused first."""


class PastCall(Struct, frozen=True, kw_only=True):
    """A call that has ended."""

    key: str
    effect: str
    """`operator/effect`."""
    retry: int
    """Number of its last attempt, from 0."""
    request: Any = UNSET
    """Decoded JSON; UNSET where the receipt does not have it, since the call failed."""
    came: Came


async def read_past_calls(history: Recording, effects: Collection[str]) -> dict[str, PastCall]:
    """Calls of some effects (`operator/effect`) that have ended, by idempotency key. Reads the log once."""
    found: dict[str, PastCall] = {}
    async for logged in history.records():
        record = logged.record
        if not isinstance(record, ReceiptNoted) or record.application != history.origin.application:
            continue
        call = _past_call(record, effects)
        if call is not None and not (record.is_repeated and call.key in found):
            found[call.key] = call
    return found


def _past_call(record: ReceiptNoted, effects: Collection[str]) -> PastCall | None:
    effect = effect_of(record.view, record.target)
    if record.verb != "call" or effect not in effects:
        return None
    if record.outcome == "failed":
        came = Came(error=record.error)
    elif record.call is not None:
        came = Came(result=canonical(record.call.result))
    else:
        return None
    request = record.call.request if record.call is not None else UNSET
    return PastCall(key=record.key, effect=effect, retry=max(record.attempts - 1, 0), request=request, came=came)
