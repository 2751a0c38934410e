"""Subjects of the log: `levelog.<cluster>.<partition>.<group>.<resource>.<namespace>.<name>`.

Control records stand in the same partition as what they speak of, so that one reader sees them in order:
`levelog.<cluster>.<partition>._sync.<group>.<resource>`, likewise `_gap` (where it is told too that
history went back), `_bookmark` and `_unreadable`, and
`levelog.<cluster>.<partition>._receipt.<application>`, where observations stand too.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from levelog_base.wire.objects import (
    CLUSTER_SCOPE,
    Application,
    Cluster,
    GroupResource,
    ObjectKey,
    Partition,
    decode_token,
    encode_token,
)

DEFAULT_PARTITIONS: Final = 16
_CORE: Final = "core"
_OBJECT_TOKENS: Final = 7
_MOST_DIGITS: Final = 5
_FNV_OFFSET: Final = 0x811C9DC5  # FNV-1a, 32 bit: http://www.isthe.com/chongo/tech/comp/fnv/
_FNV_PRIME: Final = 0x01000193


class Control(StrEnum):
    """Kinds of control records."""

    SYNC = "_sync"
    GAP = "_gap"
    BOOKMARK = "_bookmark"
    RECEIPT = "_receipt"
    UNREADABLE = "_unreadable"


def fnv1a_32(data: bytes) -> int:
    """FNV-1a hash, 32 bits."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


@lru_cache(maxsize=4096)
def partition_of(key: ObjectKey, partitions: int = DEFAULT_PARTITIONS) -> Partition:
    """Partition that holds every record of the object, and what stands for it once it is deleted."""
    key = key.living
    text = f"{key.group}/{key.resource}/{key.namespace}/{key.name}"
    return Partition(fnv1a_32(text.encode()) % partitions)


def _resource_tokens(resource: GroupResource) -> str:
    return f"{encode_token(resource.group) or _CORE}.{encode_token(resource.resource)}"


def object_subject(cluster: Cluster, key: ObjectKey, partition: Partition) -> str:
    """Subject of the object's records."""
    namespace = encode_token(key.namespace) or CLUSTER_SCOPE
    return f"levelog.{cluster}.{partition}.{_resource_tokens(key.group_resource)}.{namespace}.{encode_token(key.name)}"


def partition_in(subject: str) -> Partition | None:
    """Partition of a subject of the log; None if it is not of the form that levelog writes."""
    tokens = subject.split(".", 3)
    number = tokens[2] if len(tokens) == 4 else ""
    return Partition(int(number)) if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS else None


def object_in(subject: str) -> ObjectKey | None:
    """The object that a subject speaks of; None for control records, and for what cannot name an object."""
    tokens = subject.split(".")
    if len(tokens) != _OBJECT_TOKENS or tokens[3] in tuple(Control):
        return None
    group, resource, namespace, name = tokens[3:]
    key = ObjectKey(
        group="" if group == _CORE else decode_token(group),
        resource=decode_token(resource),
        namespace="" if namespace == CLUSTER_SCOPE else decode_token(namespace),
        name=decode_token(name),
    )
    return key if key.is_sound else None


def resource_subjects(cluster: Cluster, resource: GroupResource, *, namespace: str = "", name: str = "") -> str:
    """Wildcard over the records of a resource's objects, in all partitions; in a namespace (`_`: none), of a name."""
    place = encode_token(namespace) if namespace != CLUSTER_SCOPE else CLUSTER_SCOPE
    return f"levelog.{cluster}.*.{_resource_tokens(resource)}.{place or '*'}.{encode_token(name) or '*'}"


def control_subject(cluster: Cluster, partition: Partition, control: Control, resource: GroupResource) -> str:
    """Subject of a control record about a resource."""
    return f"levelog.{cluster}.{partition}.{control}.{_resource_tokens(resource)}"


def control_subjects(cluster: Cluster, control: Control, resource: GroupResource) -> str:
    """Wildcard over the control records of a kind about a resource, in all partitions."""
    return f"levelog.{cluster}.*.{control}.{_resource_tokens(resource)}"


def list_subjects(cluster: Cluster, partition: Partition) -> str:
    """Wildcard over the records of lists of all resources, in one partition; a list is told in each."""
    return f"levelog.{cluster}.{partition}.{Control.SYNC}.>"


def receipt_subject(cluster: Cluster, partition: Partition, application: Application) -> str:
    """Subject of the receipts of an application's intents, in the partition of the intents' parent."""
    return f"levelog.{cluster}.{partition}.{Control.RECEIPT}.{encode_token(application)}"


def receipt_subjects(cluster: Cluster) -> str:
    """Wildcard over the receipts of all applications, in all partitions."""
    return f"levelog.{cluster}.*.{Control.RECEIPT}.*"


def partition_subjects(cluster: Cluster, partition: Partition) -> str:
    """Wildcard over everything in one partition."""
    return f"levelog.{cluster}.{partition}.>"


def stream_subjects(cluster: Cluster) -> str:
    """Wildcard over the whole log of a cluster."""
    return f"levelog.{cluster}.>"


def stream_name(cluster: Cluster) -> str:
    """Name of the cluster's stream."""
    return f"levelog-{cluster}"


def notification_subject(cluster: Cluster, application: Application, topic: str) -> str:
    """Core NATS subject, in no stream, on which a process tells others that there is work (`wake`, `intent`)."""
    return f"levelog-notify.{cluster}.{encode_token(application)}.{topic}"


def lease_subject(cluster: Cluster, application: Application, task: str) -> str:
    """Subject of the lease of what one process of an application does at a time (`ingest`)."""
    return f"levelog-lease.{cluster}.{encode_token(application)}.{encode_token(task)}"


def lease_subjects(cluster: Cluster) -> str:
    """Wildcard over the leases of a cluster."""
    return f"levelog-lease.{cluster}.>"


def lease_stream(cluster: Cluster) -> str:
    """Name of the stream, in memory, that holds them; not one that a log could have."""
    return f"levelog_leases-{cluster}"
