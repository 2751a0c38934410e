"""Names that Kopf files use in annotations and comparisons."""

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from levelog.kinds import ServedKind
from levelog.resources import ResourceType


class Reason(StrEnum):
    """What a handler is called for; handlers are told it as a text, which equals one of these."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"


class DiffOperation(StrEnum):
    """How a value differs; items of a diff have it as a text, which equals one of these."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


BodyEssence: TypeAlias = Mapping[str, Any]
ObjectReference: TypeAlias = Mapping[str, Any]
OwnerReference: TypeAlias = Mapping[str, Any]
RawBody: TypeAlias = Mapping[str, Any]
RawEvent: TypeAlias = Mapping[str, Any]
RawEventType: TypeAlias = str | None
FieldPath: TypeAlias = tuple[str, ...]
FieldSpec: TypeAlias = str | tuple[str, ...] | list[str] | None
HandlerId: TypeAlias = str
Logger: TypeAlias = logging.Logger | logging.LoggerAdapter[Any]
ObjectLogger: TypeAlias = logging.Logger
LocalObjectLogger: TypeAlias = logging.Logger
PatchFn: TypeAlias = Callable[[dict[str, Any]], object]


class ConnectionInfo:
    """What a login handler returns, which is never called."""

    def __init__(self, **_: Any) -> None:
        """Take whatever a file gives."""


class LoginError(Exception):
    """What a login handler raises, which is never called."""


def served_resource(found: ResourceType) -> ServedKind:
    """A resource as handlers are given it."""
    return ServedKind(
        group=found.group,
        version=found.version,
        plural=found.plural,
        kind=found.kind,
        singular=found.kind.lower(),
        namespaced=found.scope == "Namespaced" if found.scope else None,
    )
