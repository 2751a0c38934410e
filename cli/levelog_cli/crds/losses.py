"""What of a definition is not in the classes that are written from it. Schemas are, but for fields of the server's."""

from collections.abc import Iterator
from typing import Any, Final

from levelog_cli.crds.schemas import SERVERS, Json

_SPEC: Final = {"group", "scope", "names", "versions", "conversion", "preserveUnknownFields"}
_NAMES: Final = {"plural", "singular", "kind", "listKind", "shortNames", "categories"}
_VERSION: Final = {
    *("name", "served", "storage", "deprecated", "deprecationWarning"),
    *("schema", "subresources", "additionalPrinterColumns", "selectableFields"),
}
_CONVERSION: Final[Json] = {"strategy": "None"}


def losses(definition: Json) -> Iterator[str]:
    """The place of each thing that the classes do not print again."""
    spec = definition["spec"]
    yield from (f"metadata.labels.{name}" for name in definition["metadata"].get("labels") or {})
    yield from _unknown(spec, _SPEC, "spec")
    yield from _unknown(spec["names"], _NAMES, "spec.names")
    for version in spec["versions"]:
        place = f"spec.versions.{version['name']}"
        yield from _unknown(version, _VERSION, place)
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        for name, below in schema.get("properties", {}).items():
            if name in SERVERS and not below.keys() <= {"type", "description"}:
                yield f"{place}.schema.openAPIV3Schema.properties.{name}"
    conversion = spec.get("conversion") or {}
    yield from (f"spec.conversion.{key}" for key, value in conversion.items() if _CONVERSION.get(key) != value)
    if spec.get("preserveUnknownFields"):
        yield "spec.preserveUnknownFields"


def _unknown(found: Json, known: set[str], place: str) -> Iterator[str]:
    yield from (f"{place}.{key}" for key, value in found.items() if key not in known and _is_said(value))


def _is_said(value: Any) -> bool:
    return value not in (None, False, {}, [])
