"""The operator of examples/webs and records of its objects, for tests below the level of a running stack."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from levelog_base.wire.objects import GroupResource, ObjectKey, Partition, Uid, Version
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import (
    ControlRecord,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    SyncFinished,
    SyncStarted,
)
from levelog_base.wire.subjects import partition_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WEBS = GroupResource(group="example.com", resource="webs")
PODS = GroupResource(group="", resource="pods")


def web(name: str, version: int, *, replicas: int = 1, image: str = "a", uid: str = "", **metadata: Any) -> ObjectSeen:
    """A Web as a watch reports it."""
    key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
    spec = {"replicas": replicas, "image": image}
    return seen(key, version, uid or f"uid-{name}", spec, **metadata)


def pod(name: str, version: int, *, owner: str = "", image: str = "a", uid: str = "", **metadata: Any) -> ObjectSeen:
    """A pod of a Web as a watch reports it; `owner` is the Web's uid."""
    key = ObjectKey(group="", resource="pods", namespace="default", name=name)
    owners = [{"apiVersion": "example.com/v1", "kind": "Web", "name": "w", "uid": owner, "controller": True}]
    metadata = {"labels": {"app": "web"}, "ownerReferences": owners if owner else [], **metadata}
    return seen(key, version, uid or f"uid-{name}", {"containers": [{"name": "web", "image": image}]}, **metadata)


def seen(key: ObjectKey, version: int, uid: str, spec: Any, **metadata: Any) -> ObjectSeen:
    """Any object as a watch reports it."""
    body = {
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": uid,
            "resourceVersion": str(version),
            **metadata,
        },
        "spec": spec,
    }
    return ObjectSeen(
        key=key, uid=Uid(uid), version=Version(version), origin="watch", time=NOON, body=msgspec.json.encode(body)
    )


def deleted(record: ObjectSeen, version: int) -> ObjectDeleted:
    """The deletion of what was seen."""
    return ObjectDeleted(
        key=record.key, uid=record.uid, version=Version(version), origin="watch", time=NOON, body=record.body
    )


def logged(
    records: Sequence[ObjectSeen | ObjectDeleted | ControlRecord],
    *,
    first: int = 1,
    partitions: int = 4,
    partition: int = 0,
) -> list[LoggedRecord]:
    """Records at successive positions; control records go to `partition`."""
    return [
        LoggedRecord(
            sequence=LogSequence(sequence),
            partition=partition_of(record.key, partitions)
            if isinstance(record, ObjectSeen | ObjectDeleted)
            else Partition(partition),
            record_id=f"r{sequence}",
            record=record,
        )
        for sequence, record in enumerate(records, start=first)
    ]


def lists_done(resource: GroupResource, version: int) -> tuple[SyncStarted, SyncFinished]:
    """Marks around a list of a resource."""
    sync_id = f"{resource}-{version}"
    return (
        SyncStarted(resource=resource, sync_id=sync_id, time=NOON),
        SyncFinished(resource=resource, sync_id=sync_id, version=Version(version), time=NOON),
    )


def receipt(row: dict[str, Any], *, outcome: Any = "written", version: int = 0, error: str = "") -> ReceiptNoted:
    """What an actuator notes of an intent; the written target has the uid that `pod` gives."""
    target = ObjectKey.parse(row["target"])
    return ReceiptNoted(
        application="webs",
        key=row["key"],
        view=row["view"],
        parent=ObjectKey.parse(row["parent"]),
        parent_uid=Uid(row["parent_uid"]),
        round=row["round"],
        verb=row["verb"],
        target=target,
        outcome=outcome,
        target_uid=f"uid-{target.name}",
        target_version=version,
        error=error,
        attempts=row["attempts"],
        process=row["owner"],
        time=NOON,
    )
