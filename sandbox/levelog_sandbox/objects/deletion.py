"""Delete: preconditions, finalizers, graceful deletion of scheduled pods, whole collections.

An object with finalizers, a namespace, or a pod on a node is only marked; it goes when the last of these lets go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from levelog_sandbox.api import refusals
from levelog_sandbox.controllers.definitions import STORAGE, terminating
from levelog_sandbox.objects import metadata
from levelog_sandbox.objects.metadata import is_gone, unsaved
from levelog_sandbox.objects.pages import Matches
from levelog_sandbox.objects.revisions import Store, Stored
from levelog_sandbox.objects.verbs import Outcome
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]

# Origin: DefaultTerminationGracePeriod of pods.
GRACE_SECONDS: Final = 30
# Kinds whose registry answers a delete with the object instead of a Status.
RETURNED: Final = frozenset(
    {"pods", "services", "serviceaccounts", "resourcequotas", "persistentvolumeclaims", "namespaces"}
)
# Origin: the namespaces that NamespaceLifecycle protects.
KEPT: Final = frozenset({"default", "kube-system", "kube-public"})
ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
POLICIES: Final = ("Background", "Foreground", "Orphan")


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Asked(msgspec.Struct, rename="camel"):
    """The query of a delete."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    dry_run: str | None = None


class _Said(msgspec.Struct, rename="camel"):
    """The body of a delete."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The demands of a delete (`uid`, `resource_version`), and the fate of dependents (`policy`)."""

    uid: str = ""
    resource_version: str = ""
    policy: str = ""
    grace_seconds: int | None = None
    is_dry_run: bool = False

    @classmethod
    def read(cls, body: Any, query: Mapping[str, str]) -> "DeleteOptions":
        """From a request's body and query. Raises `StatusError` 400, 422."""
        try:
            said = msgspec.convert(body, _Said)
            asked = msgspec.convert(query, _Asked, strict=False)
        except msgspec.ValidationError as error:
            raise refusals.bad_request(f"the DeleteOptions cannot be read: {error}") from error
        preconditions = said.preconditions or _Preconditions()
        policy = said.propagation_policy or asked.propagation_policy
        if not policy and said.orphan_dependents is not None:
            policy = "Orphan" if said.orphan_dependents else "Background"
        if policy and policy not in POLICIES:
            supported = "Foreground", "Background", "Orphan", "nil"
            cause = refusals.unsupported_value("propagationPolicy", policy, supported)
            raise refusals.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
        grace = said.grace_period_seconds
        return cls(
            uid=preconditions.uid or "",
            resource_version=preconditions.resource_version or "",
            policy=policy or "",
            grace_seconds=asked.grace_period_seconds if grace is None else grace,
            is_dry_run=bool(said.dry_run or asked.dry_run),
        )


class Deletion:
    """The deleting part of the API."""

    def __init__(self, store: Store, clock: metadata.Clock) -> None:
        self._store = store
        self._clock = clock

    def delete(self, resource: ServedResource, namespace: str, name: str, options: DeleteOptions) -> Outcome:
        """Remove an object, or mark it while something holds it.

        Raises `StatusError` 404, and 409 when a precondition fails.
        """
        live = self._store.get(resource.storage, namespace, name)
        if live is None:
            raise refusals.not_found(resource.group, resource.plural, name)
        if resource.name == "namespaces" and name in KEPT:
            raise refusals.forbidden("", resource.plural, name, "this namespace may not be deleted")
        _check(resource, live, options)
        marked = self._marked(resource, live, options)
        is_last = is_gone(marked)
        if options.is_dry_run:
            return Outcome(unsaved(marked), 200, changed=False, gone=is_last)
        if is_last:
            # A pod is marked before it goes, however short its time; others just go.
            last = self._store.put(resource.storage, marked) if resource.name == "pods" else live
            return Outcome(self._store.remove(resource.storage, last), 200, changed=True, gone=True)
        if marked == live.body:
            return Outcome(live, 200, changed=False)
        return Outcome(self._store.put(resource.storage, marked), 200, changed=True)

    def delete_collection(
        self, resource: ServedResource, namespace: str, matches: Matches | None, options: DeleteOptions
    ) -> list[Outcome]:
        """Delete every object that the selectors show, each on its own."""
        chosen = [
            stored
            for stored in self._store.collection(resource.storage).in_order()
            if (not namespace or stored.namespace == namespace) and (matches is None or matches(stored.body))
        ]
        return [self.delete(resource, stored.namespace, stored.name, options) for stored in chosen]

    def _marked(self, resource: ServedResource, live: Stored, options: DeleteOptions) -> Json:
        """The object with a deletionTimestamp; when it has one already, at most with less time."""
        about = dict(live.body["metadata"])
        finalizers = [f for f in about.get("finalizers", ()) if f not in {ORPHAN, FOREGROUND} or not options.policy]
        if options.policy in {"Orphan", "Foreground"}:
            finalizers.append(ORPHAN if options.policy == "Orphan" else FOREGROUND)
        about.pop("finalizers", None)
        if finalizers:
            about["finalizers"] = finalizers
        grace = _grace(resource, live, options)
        if "deletionTimestamp" not in about:
            about["deletionTimestamp"] = metadata.timestamp(self._clock() + timedelta(seconds=grace))
            if resource.name == STORAGE:
                return terminating({**live.body, "metadata": about}, metadata.timestamp(self._clock()))
            if resource.name == "namespaces":
                status = {**live.body.get("status", {}), "phase": "Terminating"}
                return {**live.body, "metadata": about, "status": status}
            about["deletionGracePeriodSeconds"] = grace
            if "generation" in about:
                about["generation"] += 1
        elif (less := about.get("deletionGracePeriodSeconds", 0) - grace) > 0:
            ends = datetime.fromisoformat(about["deletionTimestamp"]) - timedelta(seconds=less)
            about |= {"deletionTimestamp": metadata.timestamp(ends), "deletionGracePeriodSeconds": grace}
        return {**live.body, "metadata": about}


def _check(resource: ServedResource, live: Stored, options: DeleteOptions) -> None:
    current = live.body["metadata"]["resourceVersion"]
    if options.uid and options.uid != live.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({live.uid}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != current:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({current}). The object might have been modified"
        )
    else:
        return
    # The server names the kind here, not the resource.
    raise refusals.conflict(resource.group, resource.kind, live.name, why)


def _grace(resource: ServedResource, live: Stored, options: DeleteOptions) -> int:
    """Only a pod on a node that still runs is given time."""
    if resource.name != "pods" or not live.body.get("spec", {}).get("nodeName"):
        return 0
    if live.body.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    own: int = live.body["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    grace = own if options.grace_seconds is None else options.grace_seconds
    return grace if grace >= 0 else 1
