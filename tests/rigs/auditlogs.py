"""Audit logs as kube-apiserver writes them, with patterns that a test plants."""

import json
import random
from collections.abc import Collection
from datetime import UTC, datetime
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from levelog_base.wire.objects import Application, Cluster, ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.records import LoggedRecord, ObjectSeen, Origin, Written
from levelog_history.reach import Moment
from levelog_replay.bundles.lines import FORMAT, EndLine, Heading, record_line

_START: Final = 1_800_000_000.0
SHOPS: Final = "shops.example.com"
SETS: Final = "statefulsets.apps"
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

    `level`: with `Metadata` the events have no bodies. `records` are what levelog's log has of the same time, once the
    lines are made: a list half a minute before the beginning, and each change within some milliseconds.
    """

    def __init__(self, level: str = "RequestResponse") -> None:
        self._level = level
        self._asked: list[tuple[float, dict[str, Any]]] = []
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._version = 100
        self.records: list[LoggedRecord] = []

    def exists(self, resource: str, name: str, *, owner: tuple[str, str] | None = None, **parts: Any) -> None:
        """An object that is there before the log begins; nobody sees how it came."""
        metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{resource}-{name}"}
        if owner is not None:
            metadata["ownerReferences"] = [{"kind": KINDS[owner[0]], "name": owner[1], "uid": f"uid-{'-'.join(owner)}"}]
        self._objects[resource, name] = {"apiVersion": "v1", "kind": KINDS[resource], "metadata": metadata, **parts}
        self._number(resource, name)
        self._record(resource, name, -30.0, "list")

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

    def write_bundle(self, path: Path) -> None:
        """A file as `levelog export` writes it, of an application that decided nothing."""
        resources = sorted({str(each.record.key.group_resource) for each in self.records})  # type: ignore[union-attr]
        lines = [
            Heading(
                format=FORMAT,
                levelog="0",
                cluster=Cluster("c"),
                application=Application("a"),
                partitions=16,
                stream_created="2026-11-28T00:00:00Z",
                resources=resources,
                first=1,
                last=len(self.records),
                begins=Moment(sequence=1),
            ),
            *map(record_line, self.records),
        ]
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        end = EndLine(records=len(self.records), decisions=0, sha256=sha256(text).hexdigest())
        path.write_bytes(text + msgspec.json.encode(end) + b"\n")

    def _record(self, resource: str, name: str, at: float, origin: Origin) -> None:
        plural, _, group = resource.partition(".")
        held, number = self._objects[resource, name], len(self.records) + 1
        seen = ObjectSeen(
            key=ObjectKey(group=group, resource=plural, namespace="shop", name=name),
            uid=Uid(held["metadata"]["uid"]),
            version=Version(int(held["metadata"]["resourceVersion"])),
            origin=origin,
            time=datetime.fromtimestamp(_START + at, UTC),
            written=Written(manager="someone"),
            body=json.dumps(held).encode(),
        )
        self.records.append(
            LoggedRecord(sequence=Sequence(number), partition=Partition(0), record_id=str(number), record=seen)
        )

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
                self._record(resource, name, at + 0.007, "watch")
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


def moments(chance: random.Random, number: int) -> list[float]:
    """So many moments of an hour and a half, in order."""
    return sorted(chance.uniform(20, 4900) for _ in range(number))


def ready_sets(level: str = "RequestResponse", *, causes: Collection[str] = (SETS,)) -> PlantedLog:
    """An operator that looks at each of three shops every 15 seconds, and writes if one of the causes has changed."""
    chance, log = random.Random(3), PlantedLog(level)
    for number in range(3):
        shop = f"s{number}"
        log.exists(SHOPS, shop, spec={"settings": f"settings-{number}"})
        log.exists(SETS, f"{shop}-db", owner=(SHOPS, shop), status={"readyReplicas": 0})
        log.exists("configmaps", f"settings-{number}", data={})
        log.exists("configmaps", f"noise-{number}", data={})
        changes: list[float] = []
        for cause in causes:
            times = moments(chance, 14)
            changes += times
            for value, at in enumerate(times, 1):
                if cause == SETS:
                    log.write("kubelet", at, SETS, f"{shop}-db", status={"readyReplicas": value})
                else:
                    log.write("people", at, cause, f"settings-{number}", data={"colour": str(value)})
        for value, at in enumerate(moments(chance, 300)):
            log.write("noise", at, "configmaps", f"noise-{number}", data={"x": str(value)})
        changes.sort()
        at, written = number * 3.0, 0
        while at < 5000:
            at += 15 + chance.uniform(-0.3, 0.3)
            log.lists("op", at, "pods")
            log.get("op", at + 0.01, SHOPS, shop)
            due = sum(change < at for change in changes)
            if due > written:
                written = due
                log.write("op", at + 0.05, SHOPS, shop, status={"seen": due})
    return log
