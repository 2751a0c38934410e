"""What an object, as the API answered it, tells about a write: identity, owner, and whether it has the fields."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog_actuator.requests import Order
from levelog_base.wire.objects import parse_version
from levelog_base.wire.projection import merge

Fields = Mapping[str, Any]
"""A tree of managedFields, `fieldsV1`: https://kubernetes.io/docs/reference/using-api/server-side-apply/"""
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading an answer raises that is no object of the API, or nests deeper than Python reads."""

_IDENTITY = ("apiVersion", "kind")
_METADATA = ("name", "namespace", "uid", "resourceVersion")


class _Owner(Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """An object as the API answered it."""

    uid: str
    version: int
    is_deleting: bool
    controller: str
    """uid of the controlling owner; empty: none."""
    controller_name: str
    """Kind and name of it, for messages."""
    body: Mapping[str, Any]

    @classmethod
    def read(cls, body: bytes) -> "Observation":
        """Decode an answer. Raises what `UNREADABLE` names."""
        found = msgspec.json.decode(body, type=dict[str, Any])
        metadata = msgspec.convert(found.get("metadata") or {}, _Metadata)
        owner = next((each for each in metadata.owner_references or () if each.controller), _Owner())
        return cls(
            uid=metadata.uid,
            version=parse_version(metadata.resource_version),
            is_deleting=metadata.deletion_timestamp is not None,
            controller=owner.uid,
            controller_name=f"{owner.kind}/{owner.name}" if owner.controller else "",
            body=found,
        )


def holds(order: Order, seen: Observation) -> bool:
    """Tell whether the object is as the write would leave it, so that sending it again would change nothing.

    Where that cannot be told, the answer is no: values that the server writes in another form (quantities), and JSON
    patches, which need not give the same when applied twice.
    """
    match order.verb:
        case "apply":
            return _holds_applied(order, seen)
        case "patch" | "patch_status":
            return isinstance(order.body, dict) and merge(seen.body, order.body) == seen.body
        case "delete":
            return seen.is_deleting
        case _:
            return True


def _holds_applied(order: Order, seen: Observation) -> bool:
    """Tell whether the operator owns just the fields of its manifest, and they have its values."""
    wanted = {name: value for name, value in order.body.items() if name not in _IDENTITY}
    metadata = {name: value for name, value in (wanted.pop("metadata", None) or {}).items() if name not in _METADATA}
    if metadata:
        wanted["metadata"] = metadata
    return _is_as_applied(_fields_of(order.field_manager, seen), wanted, seen.body)


def _fields_of(manager: str, seen: Observation) -> Fields:
    entries = (seen.body.get("metadata") or {}).get("managedFields") or ()
    for entry in entries:
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", ""):
            return dict(entry.get("fieldsV1") or {})
    return {}


def _is_as_applied(fields: Fields, wanted: Any, actual: Any) -> bool:
    parts = {name: below for name, below in fields.items() if name != "."}
    if not parts:  # a scalar, a value that is owned as a whole, or a manifest without fields
        return bool(wanted == actual) or _is_empty(wanted)
    if isinstance(wanted, dict) and isinstance(actual, dict):
        owned = {name.removeprefix("f:"): below for name, below in parts.items()}
        full = {name: value for name, value in wanted.items() if not _is_empty(value)}
        emptied = wanted.keys() - full.keys()  # the server drops empty values, and notes some as owned all the same
        return (
            owned.keys() - emptied == full.keys()
            and all(name in actual and _is_as_applied(owned[name], full[name], actual[name]) for name in full)
            and all(_is_empty(actual.get(name)) for name in emptied)
        )
    if isinstance(wanted, list) and isinstance(actual, list):
        if len(parts) != len(wanted):
            return False
        return all(_has_item(name, below, wanted, actual) for name, below in parts.items())
    return False


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, dict | list) and not value)


def _has_item(name: str, below: Fields, wanted: list[Any], actual: list[Any]) -> bool:
    """Tell whether both lists have the item, `k:` and its keys or `v:` and its value, and in the same way."""
    kind, _, text = name.partition(":")
    given = msgspec.json.decode(text)
    if kind == "v":
        return given in wanted and given in actual
    if kind != "k":
        return False
    items = [_item(given, values) for values in (wanted, actual)]
    return None not in items and _is_as_applied(below, *items)


def _item(keys: Mapping[str, Any], values: list[Any]) -> Any:
    """The item with these keys; the server may have added a key's default, as for a port's protocol."""
    return next((value for value in values if all(value.get(k, given) == given for k, given in keys.items())), None)
