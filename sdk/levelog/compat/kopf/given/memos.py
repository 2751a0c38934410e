"""Memos: what handlers of one object tell each other."""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

MOST_MEMOS: Final = 100_000
"""How many are kept, those used last: a process does not hear of every deletion."""


class Memo(dict[str, Any]):
    """What handlers of one object tell each other, for as long as the process lives."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def memo_of(body: Mapping[str, Any], begins: Memo) -> Memo:
    """The memo of an object; if it has none, a copy of that with which each begins."""
    uid = _uid(body)
    with _lock:
        memo = _memos.setdefault(uid, Memo(begins))
        _memos.move_to_end(uid)
        while len(_memos) > MOST_MEMOS:
            _memos.popitem(last=False)
    return memo


def forget_memo(body: Mapping[str, Any]) -> None:
    """Drop the memo of an object that is gone."""
    with _lock:
        _memos.pop(_uid(body), None)


def _uid(body: Mapping[str, Any]) -> str:
    return str(body["metadata"].get("uid", ""))


_memos: Final[OrderedDict[str, Memo]] = OrderedDict()
_lock: Final = Lock()
