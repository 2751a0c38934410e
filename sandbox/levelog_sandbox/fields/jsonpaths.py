"""The JSONPath of printer columns, as k8s.io/client-go/util/jsonpath reads it: names, indices, slices, filters, `*`.

Limits: no unions (`[0,2]`), no recursive descent (`..name`), and one comparison in a filter.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""
    \.(?P<all>\*)
  | \.(?P<name>(?:\\.|[^.\[\]\\])+)
  | \['(?P<quoted>(?:\\.|[^'\\])*)'\]
  | \[(?P<star>\*)\]
  | \[(?P<index>-?\d+)\]
  | \[(?P<slice>-?\d*:-?\d*(?::\d*)?)\]
  | \[\?\(\s*@(?P<left>.*?)\s*
      (?:(?P<compare>==|!=|<=|>=|<|>)\s*(?P<right>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s()]+)\s*)?\)\]
    """,
    re.VERBOSE,
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def is_readable(path: str) -> bool:
    """Whether a path can be read."""
    at = 0
    while at < len(path) and (token := _TOKEN.match(path, at)) is not None:
        at = token.end()
    return at == len(path)


def first_at(value: Any, path: str) -> tuple[bool, Any]:
    """Whether there is anything at a path that can be read, and the first of it."""
    values = [value]
    for token in _TOKEN.finditer(path):
        values = [below for value in values for below in _below(value, token)]
    return (True, values[0]) if values else (False, None)


def _below(value: Any, token: re.Match[str]) -> Iterator[Any]:
    found = token.groupdict()
    name = found["name"] or found["quoted"]
    if name is not None:
        name = re.sub(r"\\(.)", r"\1", name)
        if isinstance(value, dict) and name in value:
            yield value[name]
    elif found["all"] or found["star"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif not isinstance(value, list):
        return
    elif found["index"] is not None:
        if -len(value) <= (index := int(found["index"])) < len(value):
            yield value[index]
    elif found["slice"] is not None:
        yield from value[slice(*(int(part) if part else None for part in found["slice"].split(":")))]
    else:
        yield from (each for each in value if _fits(each, found["left"], found["compare"], found["right"]))


def _fits(value: Any, left: str, comparison: str | None, right: str | None) -> bool:
    is_there, held = first_at(value, left)
    if comparison is None or right is None:
        return is_there
    if not is_there:
        return False
    wanted = _literal(right)
    if type(held) is not type(wanted) and not (_is_number(held) and _is_number(wanted)):
        return False
    return _COMPARISONS[comparison](held, wanted)


def _literal(text: str) -> Any:
    if text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
