"""Claimed intents and what is found of their targets, made up for tests of the rules."""

from typing import Any

import msgspec

from levelog_actuator.observations import Observation
from levelog_actuator.requests import Order
from levelog_base.secrets.redaction import Redactor
from rigs.intents import claimed_intent, intent

UID, OTHER_UID = "uid-seen", "uid-other"
VERSION = 7
PARENT_UID = "uid-shop"
VERBS = ("apply", "create", "patch", "patch_status", "delete")


def order(verb: str = "patch", *, body: Any = None, options: Any = None, **fields: Any) -> Order:
    """One whose decision saw its target at VERSION, unless the fields say otherwise."""
    seen: dict[str, Any] = {"key": "key", "target_uid": UID, "target_version": VERSION} | fields
    target = seen.pop("target", "webs.example.com/default/a")
    row = intent(target, verb=verb, body=BODIES[verb] if body is None else body, options=options or {}, **seen)
    return Order.read(claimed_intent(row), Redactor())


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
