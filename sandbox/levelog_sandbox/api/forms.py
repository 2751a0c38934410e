"""Another representation of objects: a Table for `kubectl get`.

Limits: core kinds have the columns NAME and AGE, pods, namespaces, deployments and definitions a few more.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, Literal

import msgspec

from levelog_sandbox.fields.jsonpaths import first_at, is_readable
from levelog_sandbox.schemas.registry import Column, ServedResource

Json = dict[str, Any]
Form = Literal["object", "table"]

_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")
_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "pods": (Column("Status", "string", ".status.phase"), _AGE),
    "namespaces": (Column("Status", "string", ".status.phase"), _AGE),
    "deployments.apps": (
        Column("Desired", "integer", ".spec.replicas"),
        Column("Available", "integer", ".status.availableReplicas"),
        _AGE,
    ),
    "services": (Column("Type", "string", ".spec.type"), Column("Cluster-IP", "string", ".spec.clusterIP"), _AGE),
    "events": (
        Column("Type", "string", ".type"),
        Column("Reason", "string", ".reason"),
        Column("Message", "string", ".message"),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (Column("Created At", "date", ".metadata.creationTimestamp"),),
}


def form(accept: str) -> Form | None:
    """The first form in an Accept header that is served; None when there is none."""
    for part in accept.split(",") if accept else ["*/*"]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        asked = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        if asked.get("g") == "meta.k8s.io" and asked.get("v", "v1") == "v1" and asked.get("as") == "Table":
            return "table"
        if "as" not in asked:
            return "object"
    return None


def columns(resource: ServedResource) -> Sequence[Column]:
    """The columns after the name."""
    if resource.columns:
        return tuple(takewhile(lambda column: is_readable(column.path), resource.columns))  # as the server does
    return _COLUMNS.get(resource.name, (_AGE,))


def table(resource: ServedResource, bodies: Sequence[Json], list_metadata: Json, *, with_columns: bool = True) -> Json:
    """A Table with one row an object; each row carries the object's metadata."""
    shown = columns(resource)
    definitions = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    definitions += [
        {"name": column.name, "type": column.type, "format": "", "description": "", "priority": column.priority}
        for column in shown
    ]
    rows = [
        {
            "cells": [body["metadata"]["name"], *(_cell(body, column) for column in shown)],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]},
        }
        for body in bodies
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": definitions if with_columns else None,
        "rows": rows,
    }


def _cell(body: Json, column: Column) -> Any:
    """As apiextensions-apiserver makes it: the first that the path finds, if it is of the column's type."""
    is_there, value = first_at(body, column.path)
    shown = _CELLS.get(column.type)
    return shown(value) if is_there and shown is not None else None


def _age(text: str) -> str:
    """As k8s.io/apimachinery/pkg/util/duration prints it: two units where the larger one is small."""
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())
    if seconds < 0:
        return "0s" if seconds == -1 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 180:
        return _two(minutes, "m", seconds % 60, "s", below=10)
    if hours < 48:
        return _two(hours, "h", minutes % 60, "m", below=8)
    if days < 730:
        return _two(days, "d", hours % 24, "h", below=8)
    return _two(days // 365, "y", days % 365, "d", below=8)


def _two(large: int, unit: str, small: int, smaller: str, *, below: int) -> str:
    return f"{large}{unit}{small}{smaller}" if large < below and small else f"{large}{unit}"


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, order="sorted").decode() if value is not None else "<no value>"


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return _age(value)
    except (ValueError, TypeError):
        return "<invalid>"


_CELLS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
