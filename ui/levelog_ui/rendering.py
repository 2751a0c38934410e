"""Templates: HTML in which every value is escaped, and the forms of times and values in it."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from levelog.escapes import escaped
from levelog.handlers.callnames import in_words
from levelog_base.counting import counted
from levelog_base.wire.objects import field_manager
from levelog_history.differences import shown
from levelog_ui.links import decision_path, object_path, record_path, with_query
from levelog_ui.times import clock, day_of, iso, stamp


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("levelog_ui"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_FILTERS)
    made.globals.update(_FUNCTIONS)
    return made


def _finalized(value: object) -> object:
    """No character of a value acts on the text around it, as one that turns the direction of writing would."""
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _pretty(content: bytes | str | None) -> Markup:
    """JSON on several lines, as it is read; empty: there is none."""
    if content is None:
        return Markup("")
    return _lines(json.dumps(json.loads(content), indent=2, ensure_ascii=False, sort_keys=True))


def _lines(text: str) -> Markup:
    """A text whose lines stay lines."""
    return Markup("\n").join(escape(escaped(line)) for line in text.split("\n"))


def _manager(name: str) -> str:
    """A field manager, of an operator with whose it is."""
    operator = name.removeprefix(field_manager(""))
    return f"operator {operator} ({name})" if operator != name else name or "(not said)"


def _linked(text: str) -> Markup:
    """A sentence in which the names of objects lead to their pages."""
    parts = _OBJECT.split(in_words(text))
    return Markup().join(
        Markup('<a href="{}">{}</a>').format(object_path(part), escaped(part)) if number % 2 else escape(escaped(part))
        for number, part in enumerate(parts)
    )


_OBJECT: Final = re.compile(r"(?<![\w/.-])([a-z0-9][a-z0-9.-]*/[a-z0-9_][a-z0-9.-]*/[A-Za-z0-9][\w.:-]*\w)")
"""The name of an object in a sentence, in whole."""
_FILTERS: Final[dict[str, Any]] = {
    "clock": clock,
    "stamp": stamp,
    "iso": iso,
    "day": day_of,
    "words": in_words,
    "object_path": object_path,
    "decision_path": decision_path,
    "pretty": _pretty,
    "lines": _lines,
    "linked": _linked,
    "manager": _manager,
    "shown": shown,
}
_FUNCTIONS: Final[dict[str, Any]] = {"counted": counted, "with_query": with_query, "record_path": record_path}
_TEMPLATES: Final = _environment()


def rendered(template: str, values: Mapping[str, Any]) -> bytes:
    """The page of a template."""
    return _TEMPLATES.get_template(template).render(values).encode("utf-8", "backslashreplace")
