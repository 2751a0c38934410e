"""Claimed intents and what is found of their targets, made up for tests of the rules."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from levelog_actuator.observations import Observation
from levelog_actuator.requests import Order
from levelog_base.secrets.redaction import Redactor
from levelog_store.actuate.claims import ClaimedIntent

UID, OTHER_UID = "uid-seen", "uid-other"
VERSION = 7
PARENT_UID = "uid-shop"
VERBS = ("apply", "create", "patch", "patch_status", "delete")


def order(verb: str = "patch", *, body: Any = None, options: Any = None, **fields: Any) -> Order:
    """One whose decision saw its target at VERSION, unless the fields say otherwise."""
    values: dict[str, Any] = {
        "key": "key",
        "view": "webs/pods",
        "parent": "webs.example.com/default/shop",
        "parent_uid": PARENT_UID,
        "partition": 3,
        "decided_at": datetime(2026, 1, 1, tzinfo=UTC),
        "round": 1,
        "verb": verb,
        "target": "webs.example.com/default/a",
        "api_version": "example.com/v1",
        "target_uid": UID,
        "target_version": VERSION,
        "body": msgspec.json.encode(BODIES[verb] if body is None else body),
        "options": msgspec.json.encode(options or {}),
        "attempts": 1,
        "claim": 1,
        "is_doubtful": False,
    }
    return Order.read(ClaimedIntent(**(values | fields)), Redactor())


def unseen(verb: str = "patch", **fields: Any) -> Order:
    """One whose decision saw no target."""
    return order(verb, **({"target_uid": "", "target_version": 0} | fields))


def manifest(**fields: Any) -> dict[str, Any]:
    """Of a Web that the parent controls."""
    owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "uid": PARENT_UID, "controller": True}
    metadata = {"name": "a", "namespace": "default", "ownerReferences": [owner]}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, **fields}


BODIES: dict[str, Any] = {
    "apply": manifest(spec={"image": "a"}),
    "create": manifest(spec={"image": "a"}),
    "patch": {"spec": {"image": "a"}},
    "patch_status": {"status": {"ready": 1}},
    "delete": {},
}


def observation(
    *, uid: str = UID, version: int = VERSION, controller: str = PARENT_UID, is_deleting: bool = False, **fields: Any
) -> Observation:
    """An object that is there."""
    metadata: dict[str, Any] = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    if controller:
        owner = {"apiVersion": "apps/v1", "kind": "Owner", "name": "o", "uid": controller, "controller": True}
        metadata["ownerReferences"] = [owner]
    if is_deleting:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    metadata |= fields.pop("metadata", {})
    return Observation.read(msgspec.json.encode({"metadata": metadata, **fields}))
