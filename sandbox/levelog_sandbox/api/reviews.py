"""TokenReview, SelfSubjectReview and access reviews: a create asks, the answer is never stored.

Limits: no SelfSubjectRulesReview; groups and selectors are taken, but do not change the answer.
"""

from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause
from levelog_sandbox.api.targets import AUDIENCE, USER, Access, Identity
from levelog_sandbox.fields.ownership import Claims, FieldWriter, claims_after_update
from levelog_sandbox.objects import corekinds, metadata
from levelog_sandbox.objects.incoming import Options, incoming
from levelog_sandbox.objects.revisions import ENCODER
from levelog_sandbox.schemas.registry import AUTHORIZATION, ServedResource

Json = dict[str, Any]

_UNKNOWN_TOKEN: Final = "invalid bearer token"  # noqa: S105 - what the server says of one


def reviewed(
    access: Access, kind: ServedResource, namespace: str, body: Any, options: Options, now: metadata.Clock
) -> tuple[Json, tuple[str, ...]]:
    """The review with its status, and warnings. Raises `StatusError` 400, 422."""
    review, warnings = incoming(kind, namespace, body, options)
    about, spec = review["metadata"], review.get("spec", {})
    moment = metadata.timestamp(now())
    if kind.kind == "SelfSubjectReview":
        about = {**about, "creationTimestamp": moment}
        return {**review, "metadata": about, "status": {"userInfo": _shown(access.identity)}}, warnings
    if kind.namespaced:
        about["namespace"] = namespace
    if kind.group == AUTHORIZATION:
        if found := _faults(kind, about, spec):
            raise refusals.invalid(AUTHORIZATION, "", "", found)
        status: Json = {"allowed": _is_allowed(access, spec)}
    elif not spec.get("token"):
        raise refusals.bad_request("token is required for TokenReview in authentication")
    else:
        status = _authenticated(access, spec)
    writer = FieldWriter(options.field_manager, kind.api_version, "", moment)
    said = {**review, "metadata": {key: value for key, value in about.items() if key != "namespace"}, "spec": spec}
    empty = {**corekinds.bare(review), "spec": {}}
    claims: Claims = claims_after_update(empty, said, {}, kind.schema, writer)
    return metadata.with_claims({**said, "metadata": about, "status": status}, claims), warnings


def _authenticated(access: Access, spec: Json) -> Json:
    identity = access.tokens.get(spec["token"])
    wanted = spec.get("audiences") or [AUDIENCE]
    if identity is None or AUDIENCE not in wanted:
        return {"user": {}, "error": _UNKNOWN_TOKEN}
    return {"authenticated": True, "user": _shown(identity), "audiences": [AUDIENCE]}


def _shown(identity: Identity) -> Json:
    shown: Json = {"username": identity.name}
    if identity.uid:
        shown["uid"] = identity.uid
    return {**shown, "groups": [*identity.groups, "system:authenticated"]}


def _is_allowed(access: Access, spec: Json) -> bool:
    """For a review of one's own rights, `spec` names no user."""
    user = spec.get("user", "") if "user" in spec or "groups" in spec else USER
    if "nonResourceAttributes" in spec:
        asked = spec["nonResourceAttributes"]
        return access.is_allowed(asked.get("verb", ""), asked.get("path", ""), "", "", user)
    asked = spec["resourceAttributes"]
    resource = refusals.qualified(asked.get("group", ""), asked.get("resource", ""))
    return access.is_allowed(
        asked.get("verb", ""), resource, asked.get("namespace", ""), asked.get("subresource", ""), user
    )


def _faults(kind: ServedResource, about: Json, spec: Json) -> list[RefusalCause]:
    """The faults of a question about rights."""
    found: list[RefusalCause] = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    given = {"Path": (path or {}).get("path", ""), "Verb": (path or {}).get("verb", "")}
    shown = ENCODER.encode(given).decode()
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        found.append(refusals.invalid_value("spec.nonResourceAttributes", shown, why))
    elif resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        found.append(refusals.invalid_value("spec.resourceAttributes", "null", why))
    if not kind.kind.startswith("Self") and not (spec.get("user") or spec.get("groups")):
        why = "at least one of user or group must be specified"
        found.append(refusals.invalid_value("spec.user", '""', why))
    if kind.namespaced:
        found += _faults_in_namespace(about["namespace"], resource, shown if path is not None else "")
    elif about:
        found.append(refusals.invalid_value("metadata", ENCODER.encode(about).decode(), "must be empty"))
    return found


def _faults_in_namespace(namespace: str, resource: Json | None, path: str) -> list[RefusalCause]:
    if path:
        return [refusals.invalid_value("spec.nonResourceAttributes", path, "disallowed on this kind of request")]
    given = (resource or {}).get("namespace", "")
    if given == namespace:
        return []
    why = "must match metadata.namespace"
    return [refusals.invalid_value("spec.resourceAttributes.namespace", f'"{given}"', why)]
