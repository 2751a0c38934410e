"""Templates: HTML in which every value is escaped, and the forms of times and values in it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from levelog.counting import counted
from levelog.escapes import escaped
from levelog.handlers.callnames import in_words
from levelog_ui.links import decision_path, object_path, with_query


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
    )
    made.globals.update(counted=counted, with_query=with_query)
    return made


def _finalized(value: object) -> object:
    """No character of a value acts on the text around it, as one that turns the direction of writing would."""
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _pretty(content: bytes | None) -> Markup:
    """JSON on several lines, as it is read; empty: there is none."""
    if content is None:
        return Markup("")
    lines = json.dumps(json.loads(content), indent=2, ensure_ascii=False, sort_keys=True).split("\n")
    return Markup("\n").join(escape(escaped(line)) for line in lines)


_TEMPLATES: Final = _environment()


def rendered(template: str, values: Mapping[str, Any]) -> bytes:
    """The page of a template."""
    return _TEMPLATES.get_template(template).render(values).encode("utf-8", "backslashreplace")
