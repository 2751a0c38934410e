"""Deletion of a namespace: deletes its objects, reports the rest in its status, then removes its finalizer.

Origin of the conditions and their words: the namespace controller of kube-controller-manager.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from levelog_sandbox.objects.metadata import Clock, timestamp
from levelog_sandbox.objects.revisions import Store, Stored
from levelog_sandbox.schemas.registry import Registry, ServedResource

Json = dict[str, Any]
Delete = Callable[[ServedResource, Stored], None]
Write = Callable[[Stored, Json, str], None]

FINALIZER: Final = "kubernetes"
# What holds, as nothing can go wrong here: type, reason and message of conditions that are False.
_ALWAYS: Final = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class Namespaces:
    """Empties namespaces; `delete` is called for each object in one, `write` with its new status or finalizers."""

    def __init__(self, store: Store, registry: Registry, delete: Delete, write: Write, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._delete = delete
        self._write = write
        self._clock = clock

    def empty(self, namespace: Stored) -> None:
        """Delete what is in a namespace that ends; once nothing is left, take its finalizer off."""
        finalizers = namespace.body.get("spec", {}).get("finalizers", ())
        if FINALIZER not in finalizers:
            return
        for resource, stored in self._contents(namespace.name):
            if "deletionTimestamp" not in stored.body["metadata"]:
                self._delete(resource, stored)
        rest = self._contents(namespace.name)
        status = namespace.body.get("status", {})
        known = {condition["type"]: condition for condition in status.get("conditions", ())}
        conditions = [self._condition(known, *each) for each in _conditions(rest)]
        others = [condition for kind, condition in known.items() if kind not in {each["type"] for each in conditions}]
        if conditions != [known.get(each["type"]) for each in conditions]:
            status = {**status, "conditions": [*others, *conditions]}
            self._write(namespace, {**namespace.body, "status": status}, "status")
        if rest:
            return
        live = self._store.get("namespaces", "", namespace.name)
        if live is not None:
            kept = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
            self._write(live, {**live.body, "spec": {**live.body["spec"], "finalizers": kept}}, "finalize")

    def _contents(self, namespace: str) -> list[tuple[ServedResource, Stored]]:
        found: list[tuple[ServedResource, Stored]] = []
        for storage in tuple(self._registry.storages()):
            resource = self._registry.stored_as(storage)
            if resource is not None and resource.namespaced:
                objects = self._store.collection(storage).objects.values()
                found += [(resource, stored) for stored in objects if stored.namespace == namespace]
        return found

    def _condition(self, known: dict[str, Json], kind: str, status: str, reason: str, message: str) -> Json:
        """The condition as it is there already, or a new one of now."""
        said = {"type": kind, "status": status, "reason": reason, "message": message}
        before = known.get(kind, {})
        if all(before.get(key) == value for key, value in said.items()):
            return before
        return {**said, "lastTransitionTime": timestamp(self._clock())}


def _conditions(rest: list[tuple[ServedResource, Stored]]) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of each condition of a namespace in which this remains."""
    remaining = Counter(f"{resource.plural}.{resource.group}" for resource, _ in rest)
    held = Counter(name for _, stored in rest for name in stored.body["metadata"].get("finalizers", ()))
    found = [(kind, "False", reason, message) for kind, reason, message in _ALWAYS]
    if remaining:
        counts = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(remaining.items()))
        message = f"Some resources are remaining: {counts}"
        found.append(("NamespaceContentRemaining", "True", "SomeResourcesRemain", message))
    else:
        found.append(
            ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"),
        )
    if held:
        counts = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(held.items()))
        message = f"Some content in the namespace has finalizers remaining: {counts}"
        found.append(("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message))
    else:
        message = "All content-preserving finalizers finished"
        found.append(("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", message))
    return found
