"""Objects that an index fails for: what that means for the levels whose views read it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from levelog.handlers.callnames import in_words
from levelog.handlers.indexers import OnError
from levelog_processors.bound import BoundView
from levelog_processors.state.buckets import Buckets
from levelog_store.rows import ERRORS, IndexKey, whole_index_key


class _Failure(Struct, frozen=True):
    """Value of an entry whose key begins with ERRORS."""

    object: str
    error: str


_failure: Final = msgspec.json.Decoder(_Failure)


class Omissions(NamedTuple):
    """What indices fail for, in words; empty where there is nothing."""

    blocked: str
    """It concerns the level, or does by what the index says, and blocks it."""
    lacks: str
    """It may concern the level, which goes on."""


def omissions(
    guards: Mapping[str, OnError],
    left_out: Callable[[str], Sequence[bytes]],
    under_keys: Mapping[str, Collection[bytes]],
    of_whole: Callable[[str], Sequence[bytes]],
) -> Omissions:
    """Judge errors of indices: of objects whose keys nobody knows, of keys that were read, and of whole indices.

    Who reads an index as a whole goes on with old entries: any object could block it otherwise.
    """
    if not guards:
        return Omissions("", "")
    blocked: list[str] = []
    lacks: list[str] = []
    for index, mode in guards.items():
        found = [_told(index, "leaves out", left_out(index)), _told(index, "fails for", of_whole(index))]
        (blocked if mode == "block" else lacks).extend(found)
        blocked.append(_told(index, "fails for", sorted(under_keys.get(index, ()))))
    return Omissions(*("; ".join(dict.fromkeys(filter(None, reasons))) for reasons in (blocked, lacks)))


def lacking(view: BoundView, buckets: Buckets, places: Collection[IndexKey]) -> str:
    """What a level goes on without that has read these keys."""
    if not buckets.is_failing:
        return ""

    def of_whole(index: str) -> Sequence[bytes]:
        return buckets.errors(index) if (index, whole_index_key(0)) in places else ()

    return omissions(view.guards, lambda index: buckets.get((index, ERRORS)).values, {}, of_whole).lacks


def _told(index: str, verb: str, errors: Sequence[bytes]) -> str:
    if not errors:
        return ""
    first = _failure.decode(errors[0])
    more = f" (and {len(errors) - 1} more objects)" if len(errors) > 1 else ""
    return f"index {in_words(index)} {verb} {first.object}{more}: {first.error}"
