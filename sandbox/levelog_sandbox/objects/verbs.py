"""Create, replace, patch and apply: from a request's body to a stored revision.

Every write is one synchronous step on the event loop, so none sees another half done. A write that changes nothing
leaves the resourceVersion; a dry run answers as if it had been stored.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from levelog_base.wire.canonical import is_other
from levelog_sandbox.api import refusals
from levelog_sandbox.fields.ownership import Claims, FieldWriter, apply, claims_after_update, read_claims
from levelog_sandbox.objects import corekinds, metadata
from levelog_sandbox.objects.incoming import Options, applied, incoming, misnamed, unfit_patch
from levelog_sandbox.objects.metadata import is_gone, unsaved, with_claims, without_claims
from levelog_sandbox.objects.revisions import Store, Stored
from levelog_sandbox.schemas import celrules
from levelog_sandbox.schemas.registry import ServedResource
from levelog_sandbox.schemas.validation import defaulted, faults

Json = dict[str, Any]
Mutation = Callable[[Json], Json]


class Outcome(NamedTuple):
    """The object after the write, the HTTP code, whether what is stored changed, whether it is gone, and warnings."""

    stored: Stored
    code: int
    changed: bool
    gone: bool = False
    warnings: tuple[str, ...] = ()


class Address(NamedTuple):
    """Which object a request is about."""

    resource: ServedResource
    namespace: str
    name: str


class Writes:
    """The writing half of the API."""

    def __init__(self, store: Store, clock: metadata.Clock) -> None:
        self._store = store
        self._clock = clock
        self.mutations: dict[str, Mutation] = {}
        """By resource: what becomes of an object before it is checked and stored."""

    def live(self, resource: ServedResource, namespace: str, name: str) -> Stored:
        """The stored object. Raises `StatusError` 404."""
        stored = self._store.get(resource.storage, namespace, name)
        if stored is None:
            raise refusals.not_found(resource.group, resource.plural, name)
        return stored

    def create(self, resource: ServedResource, namespace: str, body: Any, options: Options) -> Outcome:
        """Store a new object. Raises `StatusError` 400, 403, 404, 409, 422, 500."""
        new, warnings = incoming(resource, namespace, body, options)
        if new["metadata"].get("resourceVersion"):
            raise refusals.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._require_namespace(resource, namespace, new["metadata"].get("name", ""))
        if resource.has_status:
            new.pop("status", None)
        made = metadata.for_create(resource, new["metadata"], namespace, self._clock())
        new = self._filled(resource, {**new, "metadata": made})
        self._refuse(resource, new, corekinds.faults_of(resource, new))
        claims = claims_after_update(
            corekinds.empty(resource, new), new, {}, resource.schema, self._writer(resource, options)
        )
        return self._created(resource, new, claims, options)._replace(warnings=warnings)

    def replace(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Replace an object by the one given. Raises `StatusError` 400, 404, 409, 422."""
        new, warnings = incoming(resource, namespace, body, options)
        if (given := new["metadata"].get("name")) != name:
            raise refusals.bad_request(misnamed(given, name))
        live = self._store.get(resource.storage, namespace, name)
        if live is None and resource.is_created_by_replace and not options.subresource:
            return self.create(resource, namespace, body, options)
        live = self.live(resource, namespace, name)
        if resource.needs_version_to_replace and not new["metadata"].get("resourceVersion"):
            cause = refusals.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise refusals.invalid(resource.group, resource.plural, name, [cause])
        return self.update(resource, live, new, options)._replace(warnings=warnings)

    def patch(
        self, resource: ServedResource, namespace: str, name: str, change: Callable[[Json], Any], options: Options
    ) -> Outcome:
        """Replace an object by what `change` makes of it. Raises `StatusError` 400, 404, 409, 422."""
        live = self.live(resource, namespace, name)
        changed = change(live.body_as(resource))
        if wrong := unfit_patch(resource, changed, options):
            raise wrong
        new, warnings = incoming(resource, namespace, changed, options)
        if new["metadata"].get("name") != name:
            raise refusals.bad_request(misnamed(new["metadata"].get("name"), name))
        if resource.is_custom and options.subresource == "status":
            # The API server takes nothing but the status from such a patch: another uid is not even looked at.
            new = {**new, "metadata": {**new["metadata"], "uid": live.uid}}
        self._check_uid(resource, live, new)
        return self.update(resource, live, new, options)._replace(warnings=warnings)

    def apply(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Server-side apply: create or merge, and own what is said. Raises `StatusError` 400, 404, 409, 422, 500."""
        said = applied(resource, namespace, name, body, options.subresource)
        live = self._store.get(resource.storage, namespace, name)
        writer = self._writer(resource, options)
        if live is None:
            return self._created_by_apply(Address(resource, namespace, name), said, writer, options)
        self._check_uid(resource, live, said)
        claims = read_claims(live.body["metadata"].get("managedFields"))
        before = without_claims(live.body)
        if not claims:
            # What was written while nothing was tracked is owned by a manager of this name.
            early = replace(writer, manager="before-first-apply", subresource="")
            claims = claims_after_update(corekinds.empty(resource, before), before, {}, resource.schema, early)
        merged, claims = apply(before, said, claims, resource.schema, writer, force=options.is_forced)
        about = metadata.for_update(resource, before["metadata"], merged["metadata"])
        merged = self._filled(resource, defaulted({**merged, "metadata": about}, resource.schema))
        self._refuse(resource, merged, corekinds.update_faults(resource, before, merged), before)
        return self._updated(resource, live, merged, claims, options)

    def _created_by_apply(self, at: Address, said: Json, writer: FieldWriter, options: Options) -> Outcome:
        resource, namespace, name = at
        if options.subresource:
            raise refusals.not_found(resource.group, resource.plural, name)
        if "name" not in said["metadata"]:
            raise refusals.bad_request(misnamed(None, name))
        if uid := said["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise refusals.conflict(resource.group, resource.plural, name, why)
        self._require_namespace(resource, namespace, name)
        merged, claims = apply(corekinds.bare(said), said, {}, resource.schema, writer, force=False)
        made = metadata.for_create(resource, merged["metadata"], namespace, self._clock())
        made.pop("resourceVersion", None)
        new = self._filled(resource, defaulted({**merged, "metadata": made}, resource.schema))
        self._refuse(resource, new, corekinds.faults_of(resource, new))
        return self._created(resource, new, claims, options)

    def _created(self, resource: ServedResource, new: Json, claims: Claims, options: Options) -> Outcome:
        about = new["metadata"]
        if self._store.get(resource.storage, about.get("namespace", ""), about["name"]):
            raise refusals.already_exists(resource.group, resource.plural, about["name"])
        new = with_claims(corekinds.completed(resource, new, self._store.revision), claims)
        if options.is_dry_run:
            return Outcome(unsaved(new), 201, changed=False)
        return Outcome(self._store.put(resource.storage, new), 201, changed=True)

    def update(self, resource: ServedResource, live: Stored, new: Json, options: Options) -> Outcome:
        """Store what an update makes of an object; the half that is not addressed stays as it is."""
        before = without_claims(live.body)
        entries = None if options.subresource else new["metadata"].get("managedFields")
        new = self._filled(resource, addressed_half(resource, before, new, options.subresource))
        self._refuse(resource, new, corekinds.update_faults(resource, before, new), before)
        # Asking for no owners takes one empty entry; no entries at all are taken as none sent.
        claims = {} if entries == [{}] else read_claims(entries or live.body["metadata"].get("managedFields"))
        if claims and (options.subresource != "scale" or _is_owned(resource, claims)):
            writer = self._writer(resource, options)
            seen = (_seen(resource, before, options.subresource), _seen(resource, new, options.subresource))
            claims = claims_after_update(*seen, claims, resource.schema, writer)
        return self._updated(resource, live, new, claims, options)

    def _updated(self, resource: ServedResource, live: Stored, new: Json, claims: Claims, options: Options) -> Outcome:
        """Count the generation, store what changed, and remove what only waited for its finalizers."""
        before = without_claims(live.body)
        if resource.has_generation and is_other(_counted(resource, before), _counted(resource, new)):
            generation = live.body["metadata"].get("generation", 0) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        claimed = read_claims(live.body["metadata"].get("managedFields"))
        if not is_other(before, new) and _timeless(claims) == _timeless(claimed):
            return Outcome(live, 200, changed=False)
        new = with_claims(new, claims)
        if options.is_dry_run:
            return Outcome(unsaved(new), 200, changed=False)
        if is_gone(new):
            # Watchers see the last stored state; the client sees its own.
            self._store.remove(resource.storage, live)
            return Outcome(unsaved(new), 200, changed=True, gone=True)
        return Outcome(self._store.put(resource.storage, new), 200, changed=True)

    def _filled(self, resource: ServedResource, body: Json) -> Json:
        mutate = self.mutations.get(resource.name)
        body = corekinds.filled(resource, body)
        return mutate(body) if mutate else body

    def _check_uid(self, resource: ServedResource, live: Stored, new: Json) -> None:
        uid = new["metadata"].get("uid", live.uid)
        if uid != live.uid:
            cause = refusals.invalid_value("metadata.uid", uid, "field is immutable")
            raise refusals.invalid(resource.group, resource.kind, live.name, [cause])

    def _require_namespace(self, resource: ServedResource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        home = self._store.get("namespaces", "", namespace)
        if home is None:
            raise refusals.not_found("", "namespaces", namespace)
        if "deletionTimestamp" in home.body["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            ends = f"namespace {namespace} is being terminated"
            cause = refusals.RefusalCause("metadata.namespace", "NamespaceTerminating", ends)
            raise refusals.forbidden(resource.group, resource.plural, name, why, [cause])

    def _refuse(
        self,
        resource: ServedResource,
        body: Json,
        further: list[refusals.RefusalCause],
        before: Json | None = None,
    ) -> None:
        """Raise `StatusError` 422 for what is wrong with names, schema, or by further rules."""
        # Types of metadata fit, and its lists may repeat items.
        shape = faults({**body, "metadata": {}}, resource.schema)
        found = metadata.faults(resource, body["metadata"]) + shape + further
        if resource.is_custom and resource.scale:
            found += resource.scale.faults(body)
        found += celrules.faults(body, before, resource.schema, found)
        if found:
            raise refusals.invalid(resource.group, resource.kind, body["metadata"].get("name", ""), found)

    def _writer(self, resource: ServedResource, options: Options) -> FieldWriter:
        moment = metadata.timestamp(self._clock())
        return FieldWriter(options.field_manager, resource.api_version, options.subresource, moment)


def addressed_half(resource: ServedResource, live: Json, new: Json, subresource: str) -> Json:
    """The new object where the request may write, the live one elsewhere: without subresource all but the status.

    Through the status of a core kind, metadata may be written too, but not the owners; this is what the server does.
    """
    updated = metadata.for_update(resource, live["metadata"], new["metadata"])
    if subresource == "status":
        kept = {key: value for key, value in live.items() if key != "status"}
        if not resource.is_custom:
            updated.pop("ownerReferences", None)
            owners = live["metadata"].get("ownerReferences")
            kept["metadata"] = {**updated, "ownerReferences": owners} if owners else updated
        return {**kept, "status": new["status"]} if "status" in new else kept
    if subresource == "scale" and resource.scale:
        return {**resource.scale.scaled(live, resource.scale.replicas(new)), "metadata": updated}
    written = {**new, "metadata": updated}
    if resource.name == "namespaces":
        written["spec"] = live.get("spec", {})
    if resource.has_status:
        written.pop("status", None)
        if "status" in live:
            written["status"] = live["status"]
    return written


def _seen(resource: ServedResource, body: Json, subresource: str) -> Json:
    """The values by which owners are told apart: through a scale no replicas are the same as absent."""
    if subresource != "scale" or resource.scale is None or resource.scale.replicas(body):
        return body
    return resource.scale.scaled(body, None)


def _is_owned(resource: ServedResource, claims: Claims) -> bool:
    """Whether somebody owns the replicas; through a scale they only pass from one to the next."""
    path = tuple(f"f:{key}" for key in resource.scale.wanted) if resource.scale else ()
    return any(path in claim.paths for claim in claims.values())


def _counted(resource: ServedResource, body: Json) -> Json:
    """The part of an object whose changes the generation counts: no metadata, and no status that is a subresource.

    That of a deployment counts its annotations too.
    """
    counted = {k: v for k, v in body.items() if k != "metadata" and not (k == "status" and resource.has_status)}
    if resource.name == "deployments.apps":
        counted["annotations"] = body["metadata"].get("annotations")
    return counted


def _timeless(claims: Claims) -> Any:
    return {manager: (claim.version, claim.paths) for manager, claim in claims.items()}
