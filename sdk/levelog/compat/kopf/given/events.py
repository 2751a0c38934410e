"""Kubernetes Events that handlers post about their object: written with the patch of the call."""

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from levelog import intents
from levelog.compat.kopf.given.hierarchies import at_hand

posted: Final[ContextVar[list[tuple[intents.EventType, str, str]] | None]] = ContextVar(
    "levelog_kopf_events", default=None
)
"""Type, reason and note of the Events of the call that runs now."""
_logger: Final = logging.getLogger("levelog.compat.kopf")


def event(objs: Any, *, type: str, reason: str, message: str = "") -> None:  # noqa: A002 - as Kopf calls it
    """Post an Event about the object of the handler; of other objects none is posted, and a warning says so."""
    events, own = posted.get(), at_hand.get()
    if events is None or own is None:
        _logger.warning("kopf.event(%s): no handler is running whose object it could be about: not posted", reason)
        return
    for each in objs if isinstance(objs, list | tuple) else [objs]:
        found: Any = getattr(each, "obj", each)
        uid = found["metadata"].get("uid") if isinstance(found, Mapping) else None
        if uid != own["metadata"].get("uid"):
            _logger.warning("kopf.event(%s): it is not about the object of the handler: not posted", reason)
            continue
        try:
            made = intents.event(reason, message)
        except (TypeError, ValueError) as error:
            _logger.warning("kopf.event(%s): %s: not posted", reason, error)
            continue
        events.append(("Warning" if type in ("Warning", "Error") else "Normal", reason, made.body["note"]))


def info(objs: Any, *, reason: str, message: str = "") -> None:
    """Post an Event that all is well."""
    event(objs, type="Normal", reason=reason, message=message)


def warn(objs: Any, *, reason: str, message: str = "") -> None:
    """Post a warning."""
    event(objs, type="Warning", reason=reason, message=message)


def exception(objs: Any, *, reason: str = "", message: str = "", exc: BaseException | None = None) -> None:
    """Post a warning about an exception, by default the one that is being handled."""
    error = exc if exc is not None else sys.exc_info()[1]
    named = reason or (type(error).__name__ if error is not None else "Error")
    event(objs, type="Warning", reason=named, message=": ".join(str(each) for each in (message, error) if each))
