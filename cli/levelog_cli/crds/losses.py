"""What of definitions is not in the classes that were written from them: those are loaded, and print theirs."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from levelog_cli.crds.definitions import definitions_of
from levelog_cli.crds.importing import LAST_APPLIED
from levelog_cli.crds.schemas import SERVERS, Json
from levelog_cli.loading import load_classes

_ABSENT: Final = object()


def losses(definitions: Mapping[str, Json], source: str) -> Iterator[str]:
    """The place in a definition of each thing that the classes of the source do not print again.

    Raises as `load_classes` and `definitions_of`.
    """
    with tempfile.TemporaryDirectory(prefix="levelog-import-") as folder:
        file = Path(folder) / "imported.py"
        file.write_text(source)
        made = {each["metadata"]["name"]: each for each in definitions_of(load_classes([file]))}
    for name, definition in definitions.items():
        if name in made:
            yield from (f"{name} {place}" for place in _differences(_plain(definition), _plain(made[name]), ""))
        else:
            yield f"{name} metadata.name, which is not made of plural and group"


def _plain(definition: Json) -> Json:
    """A definition without what holds anyhow."""
    spec, metadata = definition["spec"], definition["metadata"]
    kind = spec["names"]["kind"]
    names = {key: value for key, value in spec["names"].items() if value}
    annotations = {key: text for key, text in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    return {
        "metadata": {"labels": metadata.get("labels") or {}, "annotations": annotations},
        "spec": {
            **{key: value for key, value in spec.items() if key != "preserveUnknownFields" or value},
            "names": {"singular": kind.lower(), "listKind": f"{kind}List"} | names,
            "versions": {version["name"]: _version(version) for version in spec["versions"]},
            "conversion": {"strategy": "None"} | (spec.get("conversion") or {}),
        },
    }


def _version(version: Json) -> Json:
    plain = {key: value for key, value in version.items() if value not in ({}, [], None, False)}
    schema = _schema(version.get("schema", {}).get("openAPIV3Schema", {}))
    properties = {name: below for name, below in schema.get("properties", {}).items() if not _is_servers(name, below)}
    schema["required"] = [name for name in schema.get("required", ()) if name not in SERVERS]
    return plain | {"schema": {"openAPIV3Schema": schema | {"properties": properties}}}


def _is_servers(name: str, schema: Json) -> bool:
    """Whether the schema has no more than the server's own."""
    type_ = "object" if name == "metadata" else "string"
    return name in SERVERS and schema.keys() <= {"type", "description"} and schema.get("type", type_) == type_


def _schema(schema: Json) -> Json:
    """Descriptions are texts without lines, and names that are required a set."""
    plain = {
        key: value for key, value in schema.items() if key not in ("description", "nullable", "properties") or value
    }
    if "description" in plain:
        plain["description"] = " ".join(str(plain["description"]).split())
    if "required" in plain:
        plain["required"] = sorted(plain["required"])
    if "properties" in plain:
        plain["properties"] = {name: _schema(below) for name, below in plain["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(plain.get(key), dict):
            plain[key] = _schema(plain[key])
    return plain


def _differences(was: Any, now: Any, place: str) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in {**was, **now}:
            below = f"{place}.{key}" if place else str(key)
            yield from _differences(was.get(key, _ABSENT), now.get(key, _ABSENT), below)
    elif was != now and not (was in ({}, []) and now is _ABSENT):
        yield place
