"""Garbage collection: deletes dependents of absent owners, and the objects of deleted namespaces and CRDs.

Runs in its own task, a moment after the write that made the garbage, as in a cluster. Its deletes are logged under the
user agent `levelog-sandbox-garbage-collector`.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from levelog_sandbox.api.refusals import StatusError
from levelog_sandbox.controllers.definitions import CLEANUP, STORAGE
from levelog_sandbox.objects.deletion import FOREGROUND, ORPHAN
from levelog_sandbox.objects.metadata import is_gone, unsaved
from levelog_sandbox.objects.revisions import Change, Collection, Store, Stored
from levelog_sandbox.schemas.registry import Registry, ServedResource

log = logging.getLogger(__name__)

Json = dict[str, Any]
Delete = Callable[[ServedResource, Stored], None]
Id = tuple[str, str, str]

USER_AGENT: Final = "levelog-sandbox-garbage-collector"


class GarbageCollector:
    """Follows every change; `delete` is called for each object that must go."""

    def __init__(self, store: Store, registry: Registry, delete: Delete) -> None:
        self._store = store
        self._registry = registry
        self._delete = delete
        self._dependents: defaultdict[str, set[Id]] = defaultdict(set)
        self._uids: dict[str, Id] = {}
        self._gone: deque[str] = deque(maxlen=500)
        """Uids of owners that went last. Origin: absentOwnerCache of kube-controller-manager."""
        self._pending: asyncio.Queue[Id | str] = asyncio.Queue()
        store.listeners.append(self._follow)

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            subject = await self._pending.get()
            try:
                if isinstance(subject, str):
                    for dependent in tuple(self._dependents.get(subject, ())):
                        self._look_at(dependent)
                else:
                    self._look_at(subject)
            except StatusError as refused:  # such as that of a namespace which may not be deleted
                log.warning("%s cannot be collected: %s", subject, refused)
            finally:
                self._pending.task_done()

    async def idle(self) -> None:
        """Wait until nothing is left to look at; only while `run` runs."""
        await self._pending.join()

    def _follow(self, collection: Collection, change: Change) -> None:
        shown = change.shown
        here = (collection.storage, shown.namespace, shown.name)
        if change.before is not None:
            for owner in change.before.body["metadata"].get("ownerReferences", ()):
                self._dependents[owner["uid"]].discard(here)
        if change.after is None:
            self._uids.pop(shown.uid, None)
            self._gone.append(shown.uid)
            self._pending.put_nowait(shown.uid)
            self._notice_emptier(collection.storage, shown)
            return
        self._uids[shown.uid] = here
        owners = shown.body["metadata"].get("ownerReferences", ())
        for owner in owners:
            self._dependents[owner["uid"]].add(here)
        if owners or "deletionTimestamp" in shown.body["metadata"]:
            self._pending.put_nowait(here)

    def _notice_emptier(self, storage: str, gone: Stored) -> None:
        """Look at what waits for this object to go: its namespace, its definition, its owner in the foreground."""
        if gone.namespace:
            self._pending.put_nowait(("namespaces", "", gone.namespace))
        self._pending.put_nowait((STORAGE, "", storage))
        for owner in gone.body["metadata"].get("ownerReferences", ()):
            if owner["uid"] in self._uids:
                self._pending.put_nowait(self._uids[owner["uid"]])

    def _look_at(self, subject: Id) -> None:
        storage, namespace, name = subject
        stored = self._store.get(storage, namespace, name)
        resource = self._registry.stored_as(storage)
        if stored is None or resource is None:
            return
        about = stored.body["metadata"]
        if "deletionTimestamp" in about:
            self._finish(resource, stored)
            return
        owners = about.get("ownerReferences", ())
        if owners and not any(self._holds(owner, namespace) for owner in owners):
            self._delete(resource, stored)

    def _holds(self, owner: Json, namespace: str) -> bool:
        """Whether an owner is there, in the same namespace or cluster-wide, and is not taking its dependents along.

        So does one that cannot be looked up: its kind is not served, or is in namespaces and the dependent in none.
        """
        place = self._uids.get(owner["uid"])
        if place is None or place[1] not in {"", namespace}:
            kind = self._registry.of_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
            return owner["uid"] not in self._gone if kind is None else kind.namespaced and not namespace
        stored = self._store.get(*place)
        if stored is None:
            return False
        about = stored.body["metadata"]
        return not ("deletionTimestamp" in about and FOREGROUND in about.get("finalizers", ()))

    def _finish(self, resource: ServedResource, stored: Stored) -> None:
        finalizers = stored.body["metadata"].get("finalizers", ())
        if resource.name == "namespaces":
            self._empty(stored)
        elif CLEANUP in finalizers:
            self._drop_instances(stored)
        elif ORPHAN in finalizers:
            for dependent in tuple(self._dependents.get(stored.uid, ())):
                self._orphan(dependent, stored.uid)
            self._let_go(resource, stored, ORPHAN)
        elif FOREGROUND in finalizers:
            dependents = tuple(self._dependents.get(stored.uid, ()))
            for dependent in dependents:
                child = self._store.get(*dependent)
                if child is not None and "deletionTimestamp" not in child.body["metadata"]:
                    self._look_at(dependent)  # one that is marked is pending itself: owners may form a circle
            if not any(self._blocks(dependent, stored.uid) for dependent in dependents):
                self._let_go(resource, stored, FOREGROUND)

    def _blocks(self, dependent: Id, uid: str) -> bool:
        stored = self._store.get(*dependent)
        owners = stored.body["metadata"].get("ownerReferences", ()) if stored else ()
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _orphan(self, dependent: Id, uid: str) -> None:
        stored = self._store.get(*dependent)
        if stored is None:
            return
        about = dict(stored.body["metadata"])
        about["ownerReferences"] = [owner for owner in about["ownerReferences"] if owner["uid"] != uid]
        if not about["ownerReferences"]:
            del about["ownerReferences"]
        self._store.put(dependent[0], {**stored.body, "metadata": about})

    def _let_go(self, resource: ServedResource, stored: Stored, finalizer: str) -> None:
        about = dict(stored.body["metadata"])
        about["finalizers"] = [name for name in about.get("finalizers", ()) if name != finalizer]
        if not about["finalizers"]:
            del about["finalizers"]
        self._leave(resource.storage, {**stored.body, "metadata": about})

    def _leave(self, storage: str, body: Json) -> None:
        """Store what is left of an object, if anything still holds it."""
        if is_gone(body):
            self._store.remove(storage, unsaved(body))
        else:
            self._store.put(storage, body)

    def _empty(self, namespace: Stored) -> None:
        """Delete what is in a namespace that ends; once nothing is left, take its finalizer off."""
        for resource, stored in self._contents(namespace.name):
            if "deletionTimestamp" not in stored.body["metadata"]:
                self._delete(resource, stored)
        live = self._store.get("namespaces", "", namespace.name)
        if live is not None and live.body["spec"] and not self._contents(namespace.name):
            self._leave("namespaces", {**live.body, "spec": {}})

    def _contents(self, namespace: str) -> list[tuple[ServedResource, Stored]]:
        found: list[tuple[ServedResource, Stored]] = []
        for storage in self._registry.storages():
            resource = self._registry.stored_as(storage)
            if resource is not None and resource.namespaced:
                objects = self._store.collection(storage).objects.values()
                found += [(resource, stored) for stored in objects if stored.namespace == namespace]
        return found

    def _drop_instances(self, definition: Stored) -> None:
        resource = self._registry.stored_as(definition.name)
        collection = self._store.collection(definition.name)
        if resource is not None:
            for stored in tuple(collection.objects.values()):
                if "deletionTimestamp" not in stored.body["metadata"]:
                    self._delete(resource, stored)
        if not collection.objects:
            self._let_go(self._registry.named(STORAGE), definition, CLEANUP)
