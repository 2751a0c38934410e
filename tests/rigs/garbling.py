"""Bytes as no sender should send them: made up, or made of what a sender sends, for Hypothesis."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from levelog_base.wire.objects import MAX_VERSION

DEEP: Final = 3000
"""Levels of nesting that no parser here follows to the end."""

_NUMBERS = st.sampled_from([-1, 0, 1, MAX_VERSION, MAX_VERSION + 1, 10**400, -(10**30), 1.5, 1e308])
_TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "\0", "a\0b", "\n", "\r\n", "a/b", ".", "*", "é", "x" * 5000, str(10**30), "-5", " 7 ", "\u0665"]
    ),
)
_ODD: Final = st.one_of(
    st.none(), st.booleans(), _NUMBERS, _TEXTS, st.just([]), st.just({}), st.lists(_TEXTS, max_size=2)
).map(_json := msgspec.json.encode)
_RAW: Final = st.sampled_from(
    [
        b"",
        b"{",
        b"}",
        b"nul",
        b'"',
        b'"\\ud800"',
        b'"\\u0000"',
        b"\xff",
        b'"\xff"',
        b"NaN",
        b"1e999999",
        b"9" * 5000,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b'{"a":1,"a":2}',
    ]
)
ODD_VALUES: Final = st.one_of(_ODD, _RAW)
"""The bytes of a JSON value, or of something in its place."""


def garbled(*given: bytes) -> st.SearchStrategy[bytes]:
    """Bytes without sense, or one of those given after something has happened to it."""
    return st.one_of(st.binary(max_size=40), st.sampled_from(given).flatmap(_mishap))


def _mishap(given: bytes) -> st.SearchStrategy[bytes]:
    place = st.integers(0, len(given))
    return st.one_of(
        st.just(given),
        place.map(lambda end: given[:end]),
        place.map(lambda start: given[start:]),
        st.tuples(place, st.binary(min_size=1, max_size=4)).map(lambda at: given[: at[0]] + at[1] + given[at[0] :]),
        st.tuples(place, st.binary(min_size=1, max_size=4)).map(
            lambda at: given[: at[0]] + at[1] + given[at[0] + len(at[1]) :]
        ),
        _with_odd_member(given),
        _with_odd_member(given).flatmap(_with_odd_member),
    )


def _with_odd_member(given: bytes) -> st.SearchStrategy[bytes]:
    """One of its members has another value, comes twice, or is missing; as it is if it has none."""
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return st.just(given)
    places = _places(value)
    if not places:
        return st.just(given)
    return st.sampled_from(places).flatmap(
        lambda place: st.one_of(
            ODD_VALUES.map(lambda odd: _json(_changed(value, place, lambda _: msgspec.Raw(odd)))),
            st.just(_json(_changed(value, place[:-1], lambda holder: _without(holder, place[-1])))),
            ODD_VALUES.map(
                lambda odd: _json(_changed(value, place[:-1], lambda holder: _twice(holder, place[-1], odd)))
            ),
        )
    )


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, each in members for place in ((*at, name), *_places(each, (*at, name)))]


def _changed(value: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not place:
        return change(value)
    copy = value.copy()
    copy[place[0]] = _changed(value[place[0]], place[1:], change)
    return copy


def _without(holder: Any, name: Any) -> Any:
    copy = holder.copy()
    del copy[name]
    return copy


def _twice(holder: Any, name: Any, odd: bytes) -> Any:
    if isinstance(holder, list):
        return [*holder, msgspec.Raw(odd)]
    whole = _json(holder)
    return msgspec.Raw(whole[:-1] + b"," + _json(name) + b":" + odd + b"}")
