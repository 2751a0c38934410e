"""What an expression of Prometheus asks for, read without Prometheus: its selectors, and the labels it groups by."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_:][\w:]*)|(?P<sign>=~|!~|!=|[^\s\w])'
)
_GROUPING: Final = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS: Final = {"and", "or", "unless", "bool", "offset"}


class Matcher(NamedTuple):
    """A condition on a label."""

    label: str
    sign: str
    value: str

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels meets it."""
        found = labels.get(self.label, "")
        is_met = found == self.value if self.sign in ("=", "!=") else re.fullmatch(self.value, found) is not None
        return is_met != self.sign.startswith("!")


class Selector(NamedTuple):
    """Which series an expression reads at one place."""

    metric: str
    matchers: Sequence[Matcher]


class Expression(NamedTuple):
    """What it asks for."""

    selectors: Sequence[Selector]
    grouped: frozenset[str]
    """Labels by which it groups or joins."""


def parse(text: str) -> Expression:
    """Raises ValueError for a selector that it cannot read. Limits: no selectors without the name of a metric."""
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(text)]
    selectors: list[Selector] = []
    grouped: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, token = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind == "sign" and token == "{":
            raise ValueError(f"{text}: a selector without the name of a metric")
        if kind != "name" or token in _WORDS:
            continue
        if token in _GROUPING and after == "(":
            end = tokens.index(("sign", ")"), at)
            grouped |= {name for what, name in tokens[at:end] if what == "name"}
            at = end + 1
        elif after == "{":
            end = tokens.index(("sign", "}"), at)
            selectors.append(Selector(token, [*_matchers(text, tokens[at + 1 : end])]))
            at = end + 1
        elif after != "(" and after not in _GROUPING:  # else a function or an aggregation
            selectors.append(Selector(token, ()))
    return Expression(selectors, frozenset(grouped))


def _matchers(text: str, tokens: Sequence[tuple[str, str]]) -> Iterator[Matcher]:
    for at in range(0, len(tokens), 4):  # label, sign, value, comma
        match tokens[at : at + 4]:
            case [("name", label), ("sign", "=" | "!=" | "=~" | "!~" as sign), ("text", value), *_]:
                yield Matcher(label, sign, value[1:-1])
            case other:
                raise ValueError(f"{text}: no condition on a label: {other}")
