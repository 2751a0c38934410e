"""CustomResourceDefinitions: makes the API serve the resources of a stored CRD, and removes them with it.

Limits: no conversion webhooks; versions differ in apiVersion only.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.objects import metadata
from levelog_sandbox.objects.revisions import Change, Collection, Store, Stored
from levelog_sandbox.schemas import celrules
from levelog_sandbox.schemas.registry import Column, Registry, ServedResource
from levelog_sandbox.schemas.replicas import ScalePaths

log = logging.getLogger(__name__)

Json = dict[str, Any]

STORAGE: Final = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


def faults(body: Json) -> list[refusals.RefusalCause]:
    """The faults of a definition, beyond its schema."""
    spec = body.get("spec", {})
    names = spec.get("names", {})
    found: list[refusals.RefusalCause] = []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if body["metadata"].get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        found.append(refusals.invalid_value("metadata.name", body["metadata"].get("name"), why))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(refusals.invalid_value("spec.versions", [v.get("name") for v in versions], why))
    for index, version in enumerate(versions):
        if not version.get("schema", {}).get("openAPIV3Schema"):
            found.append(refusals.required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        found.append(refusals.unsupported_value("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    return found


def filled(body: Json) -> Json:
    """A definition with the names that may be left out."""
    spec = body.get("spec", {})
    names = dict(spec.get("names", {}))
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    return {**body, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def first_status(body: Json) -> Json:
    """The status of a definition whose names nobody has looked at yet."""
    stored = [version["name"] for version in body["spec"]["versions"] if version.get("storage")]
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def terminating(body: Json, now: str) -> Json:
    """A definition marked for deletion: held by a finalizer until its instances are gone."""
    about = body["metadata"]
    status = body.get("status", {})
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    return {
        **body,
        "metadata": {**about, "finalizers": [*about.get("finalizers", ()), CLEANUP]},
        "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]},
    }


class Definitions:
    """Follows the stored definitions and keeps the registry in step."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: metadata.Clock,
        *,
        established_after: float,
        write_status: Callable[[Stored, Json], object],
        end_watches: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._established_after = established_after
        self._write_status = write_status
        self._end_watches = end_watches
        self._told: set[str] = set()
        store.listeners.append(self._follow)

    def _follow(self, collection: Collection, change: Change) -> None:
        if collection.storage != STORAGE:
            return
        stored = change.after
        if stored is None:
            spec = change.shown.body["spec"]
            self._registry.remove(spec["group"], spec["names"]["plural"])
            self._end_watches(spec["group"], spec["names"]["plural"])
        elif not is_established(stored.body):
            asyncio.get_running_loop().call_later(self._established_after, self.establish, stored.name, stored.uid)
        else:
            self._serve(stored)

    def establish(self, name: str, uid: str) -> None:
        """Serve the definition's versions and say so in its status."""
        stored = self._store.get(STORAGE, "", name)
        if stored is None or stored.uid != uid or is_established(stored.body):
            return
        now = metadata.timestamp(self._clock())
        names = stored.body["spec"]["names"]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        status = {**stored.body["status"], "conditions": conditions, "acceptedNames": names}
        self._write_status(stored, {**stored.body, "status": status})

    def _serve(self, stored: Stored) -> None:
        spec = stored.body["spec"]
        self._registry.remove(spec["group"], spec["names"]["plural"])
        for resource in custom_resources(stored.body, self._registry):
            self._registry.add(resource)
            for line in celrules.unchecked(resource.schema):
                if (told := f"{stored.name}: {line}") not in self._told:
                    self._told.add(told)
                    log.warning("%s", told)


def custom_resources(body: Json, registry: Registry) -> list[ServedResource]:
    """The resources that a definition makes, one a served version."""
    spec = body["spec"]
    names = spec["names"]
    storage_version = next(version["name"] for version in spec["versions"] if version.get("storage"))
    found: list[ServedResource] = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        found.append(
            ServedResource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                singular=names.get("singular", names["kind"].lower()),
                namespaced=spec["scope"] == "Namespaced",
                has_status="status" in version.get("subresources", {}),
                schema=registry.builder.custom_resource(version["schema"]["openAPIV3Schema"]),
                storage=refusals.qualified(spec["group"], names["plural"]),
                stored_version=f"{spec['group']}/{storage_version}",
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                columns=tuple(
                    Column(column["name"], column["type"], column["jsonPath"], column.get("priority", 0))
                    for column in version.get("additionalPrinterColumns", ())
                ),
                selectable=tuple(field["jsonPath"].removeprefix(".") for field in version.get("selectableFields", ())),
                is_custom=True,
                published=version["schema"]["openAPIV3Schema"],
                scale=ScalePaths.of(version.get("subresources", {}).get("scale")),
            )
        )
    return found


def is_established(body: Json) -> bool:
    """Whether the resources of a definition are served."""
    conditions = body.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
