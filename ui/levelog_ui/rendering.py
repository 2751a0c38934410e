"""Templates: HTML in which every value is escaped, and the forms of times and values in it."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from levelog.counting import counted
from levelog.escapes import escaped
from levelog.handlers.callnames import in_words
from levelog_history.differences import shown
from levelog_ui.links import decision_path, object_path, record_path, with_query


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("levelog_ui"),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        clock=lambda time: f"{_utc(time):%H:%M:%S}",
        stamp=lambda time: f"{_utc(time):%Y-%m-%d %H:%M:%S}",
        iso=lambda time: _utc(time).isoformat(),
        words=in_words,
        object_path=object_path,
        decision_path=decision_path,
        last=lambda name: name.rpartition("/")[2],
        pretty=_pretty,
        lines=_lines,
        linked=_linked,
        shown=shown,
        ago=_ago,
    )
    made.globals.update(counted=counted, with_query=with_query, record_path=record_path)
    return made


def _finalized(value: object) -> object:
    """No character of a value acts on the text around it, as one that turns the direction of writing would."""
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _pretty(content: bytes | str | None) -> Markup:
    """JSON on several lines, as it is read; empty: there is none."""
    if content is None:
        return Markup("")
    return _lines(json.dumps(json.loads(content), indent=2, ensure_ascii=False, sort_keys=True))


def _lines(text: str) -> Markup:
    """A text whose lines stay lines."""
    return Markup("\n").join(escape(escaped(line)) for line in text.split("\n"))


def _linked(text: str) -> Markup:
    """A sentence in which the names of objects lead to their pages."""
    parts = _OBJECT.split(in_words(text))
    return Markup().join(
        Markup('<a href="{}">{}</a>').format(object_path(part), escaped(part)) if number % 2 else escape(escaped(part))
        for number, part in enumerate(parts)
    )


def _ago(time: datetime) -> str:
    """How long ago a time was, in the largest unit of which it was two at least."""
    seconds = max(0, int((datetime.now(UTC) - time).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_OBJECT: Final = re.compile(r"(?<![\w/.-])([a-z0-9][a-z0-9.-]*/[a-z0-9_][a-z0-9.-]*/[A-Za-z0-9][\w.:-]*\w)")
"""The name of an object in a sentence, in whole."""
_TEMPLATES: Final = _environment()


def rendered(template: str, values: Mapping[str, Any]) -> bytes:
    """The page of a template."""
    return _TEMPLATES.get_template(template).render(values).encode("utf-8", "backslashreplace")
