"""Audit logs as kube-apiserver writes them, with patterns that a test plants."""

import json
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

_START: Final = 1_800_000_000.0
KINDS: Final = {
    "shops.example.com": "Shop",
    "statefulsets.apps": "StatefulSet",
    "configmaps": "ConfigMap",
    "pods": "Pod",
    "leases.coordination.k8s.io": "Lease",
    "nodes": "Node",
}


def stamp(at: float) -> str:
    return datetime.fromtimestamp(_START + at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class PlantedLog:
    """Objects that clients get and write, in the order of the moments given, in seconds; each call becomes an event.

    `level`: with `Metadata` the events have no bodies.
    """

    def __init__(self, level: str = "RequestResponse") -> None:
        self._level = level
        self._asked: list[tuple[float, dict[str, Any]]] = []
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._version = 100

    def exists(self, resource: str, name: str, *, owner: tuple[str, str] | None = None, **parts: Any) -> None:
        """An object that is there before the log begins; nobody sees how it came."""
        metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{resource}-{name}"}
        if owner is not None:
            metadata["ownerReferences"] = [{"kind": KINDS[owner[0]], "name": owner[1], "uid": f"uid-{'-'.join(owner)}"}]
        self._objects[resource, name] = {"kind": KINDS[resource], "metadata": metadata, **parts}
        self._number(resource, name)

    def get(self, client: str, at: float, resource: str, name: str) -> None:
        self._asked.append((at, {"client": client, "verb": "get", "resource": resource, "name": name}))

    def lists(self, client: str, at: float, resource: str) -> None:
        self._asked.append((at, {"client": client, "verb": "list", "resource": resource, "name": ""}))

    def write(self, client: str, at: float, resource: str, name: str, **parts: Any) -> None:
        """An update; where no value is another than before, the version stays."""
        asked = {"client": client, "verb": "update", "resource": resource, "name": name, "parts": parts}
        self._asked.append((at, asked))

    def lines(self) -> list[str]:
        return [json.dumps(self._event(at, **asked)) for at, asked in sorted(self._asked, key=itemgetter(0))]

    def _number(self, resource: str, name: str) -> None:
        self._version += 1
        self._objects[resource, name]["metadata"]["resourceVersion"] = str(self._version)

    def _event(
        self, at: float, *, client: str, verb: str, resource: str, name: str, parts: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        plural, _, group = resource.partition(".")
        target = {"resource": plural, "namespace": "shop", "name": name, "apiGroup": group, "apiVersion": "v1"}
        held = self._objects.get((resource, name))
        if parts is not None and held is not None:
            target["resourceVersion"] = held["metadata"]["resourceVersion"]
            wanted = {part: {**held.get(part, {}), **value} for part, value in parts.items()}
            if any(held.get(part) != value for part, value in wanted.items()):
                held.update(wanted)
                self._number(resource, name)
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": self._level,
            "auditID": f"{client}-{verb}-{name}-{at}",
            "stage": "ResponseComplete",
            "requestURI": f"/apis/{resource}",
            "verb": verb,
            "user": {"username": f"system:serviceaccount:shop:{client}"},
            "userAgent": f"{client}/v1 (linux/amd64) kubernetes/abc",
            "objectRef": target,
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": stamp(at),
            "stageTimestamp": stamp(at + 0.004),
        }
        if self._level == "RequestResponse":
            event["responseObject"] = held or {"kind": "List", "items": []}
        return event
