"""What `kubectl get` shows of custom resources: printer columns, by the paths that definitions give them."""

import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rigs.clusterclient import TABLE, ClusterClient
from rigs.customresources import define, definition

SPEC = {
    "text": 'a "text"',
    "number": 3,
    "ratio": 1.5,
    "flag": True,
    "time": "2020-01-01T00:00:00Z",
    "nothing": None,
    "parts": [{"name": "x", "size": 1}, {"name": "y", "size": 2, "on": True}, {"name": "z", "size": 3}],
    "names": ["x", "y", "z"],
    "map": {"a.b/c": "dotted", "plain": "p"},
    "empty": [],
}
NOTHING = (
    *(".spec.absent", ".spec.absent.deeper", ".spec.text.deeper", ".status.conditions[0].type", ".spec.names[7]"),
    *(".spec.parts[?(@.name=='q')].size", '.spec.map[?(@.plain=="p")]', ".metadata.labels.absent"),
)
"""Paths that find nothing."""
TIME = ".spec.time"
"""Its age changes."""
# As kube-apiserver answered; what is not here is null. All that is found has a text.
CELLS: dict[str, dict[str, Any]] = {
    "string": {
        ".spec.text": 'a "text"',
        ".spec.number": "3",
        ".spec.ratio": "1.5",
        ".spec.flag": "true",
        ".spec.time": "2020-01-01T00:00:00Z",
        ".spec.nothing": "<no value>",
        ".spec": json.dumps(SPEC, separators=(",", ":"), sort_keys=True),
        ".spec.parts": '[{"name":"x","size":1},{"name":"y","on":true,"size":2},{"name":"z","size":3}]',
        ".spec.names": '["x","y","z"]',
        ".spec.map": '{"a.b/c":"dotted","plain":"p"}',
        ".spec.empty": "[]",
        ".spec.names[0]": "x",
        ".spec.names[-1]": "z",
        ".spec.names[*]": "x",
        ".spec.names[1:]": "y",
        ".spec.parts[0:2].size": "1",
        ".spec.map.a\\.b/c": "dotted",
        ".spec.map['a\\.b/c']": "dotted",
        ".spec.map['plain']": "p",
        '.spec.parts[?(@.name=="y")].size': "2",
        '.spec.parts[?(@.name == "y")].on': "true",
        ".spec.parts[?(@.size>1)].name": "y",
        ".spec.parts[?(@.size>=3)].name": "z",
        ".spec.parts[?(@.size<2)].name": "x",
        '.spec.parts[?(@.name!="x")].name': "y",
        ".spec.parts[?(@.on)].name": "y",
        ".spec.parts[?(@.on==true)].size": "2",
        '.spec.names[?(@=="y")]': "y",
        ".metadata.name": "first",
    },
    "integer": {
        ".spec.number": 3,
        ".spec.ratio": 1,
        ".spec.parts[0:2].size": 1,
        '.spec.parts[?(@.name=="y")].size': 2,
        ".spec.parts[?(@.on==true)].size": 2,
    },
    "number": {
        ".spec.number": 3,
        ".spec.ratio": 1.5,
        ".spec.parts[0:2].size": 1,
        '.spec.parts[?(@.name=="y")].size': 2,
        ".spec.parts[?(@.on==true)].size": 2,
    },
    "boolean": {
        ".spec.flag": True,
        '.spec.parts[?(@.name == "y")].on': True,
    },
    "date": dict.fromkeys(
        (
            ".spec.text",
            ".spec.names[0]",
            ".spec.names[-1]",
            ".spec.names[*]",
            ".spec.names[1:]",
            ".spec.map.a\\.b/c",
            ".spec.map['a\\.b/c']",
            ".spec.map['plain']",
            ".spec.parts[?(@.size>1)].name",
            ".spec.parts[?(@.size>=3)].name",
            ".spec.parts[?(@.size<2)].name",
            '.spec.parts[?(@.name!="x")].name',
            ".spec.parts[?(@.on)].name",
            '.spec.names[?(@=="y")]',
            ".metadata.name",
        ),
        "<invalid>",
    ),
}


async def cells_of(
    api: ClusterClient, namespace: str, columns: Sequence[tuple[str, str]], spec: dict[str, Any]
) -> list[Any]:
    """What columns, each a path and a type, show of an object."""
    group = f"g{secrets.token_hex(4)}.example.com"
    printed = [{"name": f"C{number}", "type": type_, "jsonPath": path} for number, (path, type_) in enumerate(columns)]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}}
    await define(api, definition(group, "rocks", "Rock", schema=schema, additionalPrinterColumns=printed))
    path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "first"}, "spec": spec}
    # kube-apiserver lets a POST wait for 2 s where the resource has just been defined, and a PATCH not at all
    assert (await api.apply(f"{path}/first", rock)).code == 201
    [row] = (await api.get(path, accept=f"{TABLE},application/json")).body["rows"]
    found: list[Any] = row["cells"][1:]
    return found


async def test_a_cell_is_the_first_of_what_a_path_finds(api: ClusterClient, namespace: str) -> None:
    columns = [(path, type_) for type_ in CELLS for path in (*CELLS["string"], *NOTHING)]
    found: dict[str, dict[str, Any]] = {type_: {} for type_ in CELLS}
    for (path, type_), cell in zip(columns, await cells_of(api, namespace, columns, SPEC), strict=True):
        if cell is not None and (path, type_) != (TIME, "date"):
            found[type_][path] = cell
    assert found == CELLS


AGES = (
    (timedelta(seconds=-600), "<invalid>"),
    (timedelta(minutes=20, seconds=20), "20m"),
    (timedelta(hours=4, minutes=20, seconds=20), "4h20m"),
    (timedelta(hours=9, minutes=20), "9h"),
    (timedelta(days=5, hours=3, minutes=20), "5d3h"),
    (timedelta(days=5, minutes=20), "5d"),
    (timedelta(days=30, hours=5), "30d"),
    (timedelta(days=3 * 365 + 10, hours=5), "3y10d"),
    (timedelta(days=9 * 365 + 10, hours=5), "9y"),
)


async def test_a_time_is_shown_as_an_age(api: ClusterClient, namespace: str) -> None:
    spec = {f"time{number}": f"{datetime.now(UTC) - ago:%FT%TZ}" for number, (ago, _) in enumerate(AGES)}
    columns = [(f".spec.{name}", "date") for name in spec]
    assert await cells_of(api, namespace, columns, spec) == [shown for _, shown in AGES]


async def test_a_path_that_cannot_be_read_ends_the_columns(api: ClusterClient, namespace: str) -> None:
    columns = [(".spec.text", "string"), ('.spec.map["plain"]', "string"), (".spec.text", "string")]
    assert await cells_of(api, namespace, columns, SPEC) == ['a "text"']
