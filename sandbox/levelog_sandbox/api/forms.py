"""Other forms of an object that clients may ask for: a Table for `kubectl get`, and PartialObjectMetadata.

Limits: core kinds have the columns NAME and AGE, pods, namespaces, deployments and definitions a few more.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from levelog_sandbox.schemas.registry import Column, ServedResource

Json = dict[str, Any]
Form = Literal["object", "table", "metadata"]

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
        if asked.get("g") == "meta.k8s.io" and asked.get("v", "v1") == "v1":
            if asked.get("as") == "Table":
                return "table"
            if asked.get("as") in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
                return "metadata"
        if "as" not in asked:
            return "object"
    return None


def columns(resource: ServedResource) -> Sequence[Column]:
    """The columns after the name."""
    if resource.columns:
        return resource.columns
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
            "object": partial(body),
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


def partial(body: Json) -> Json:
    """The object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}


def partial_list(bodies: Sequence[Json], list_metadata: Json) -> Json:
    """The objects as a PartialObjectMetadataList."""
    items = [partial(body) for body in bodies]
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "items": items,
    }


def _cell(body: Json, column: Column) -> Any:
    value: Any = body
    for key in column.path.strip(".").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if column.type == "date" and isinstance(value, str):
        return _age(value)
    if isinstance(value, dict | list) or (value is None and column.type == "string"):
        return "" if value is None else str(value)
    return value


def _age(text: str) -> str:
    """As kubectl prints durations, in the largest unit that fills it."""
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())
    for unit, size, least in (("d", 86400, 2), ("h", 3600, 2), ("m", 60, 2)):
        if seconds >= size * least:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"
