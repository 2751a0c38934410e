"""SelfSubjectReview and SelfSubjectAccessReview: who asks, and what may be done; the answer is never stored.

Limits: no reviews of tokens, of other users' rights, or of all rules, since all requests are of one user.
"""

from typing import Any

from levelog_sandbox.api import refusals
from levelog_sandbox.api.urltargets import USER, Access
from levelog_sandbox.fields.ownership import FieldWriter, claims_after_update
from levelog_sandbox.objects import corekinds, metadata
from levelog_sandbox.objects.incoming import Options, incoming
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]


def reviewed(
    access: Access, kind: ServedResource, body: Any, options: Options, now: metadata.Clock
) -> tuple[Json, tuple[str, ...]]:
    """The review with its status, and warnings. Raises `StatusError` 400, 422."""
    review, warnings = incoming(kind, "", body, options)
    about, spec = review["metadata"], review.get("spec", {})
    moment = metadata.timestamp(now())
    if kind.kind == "SelfSubjectReview":
        user = {"username": USER, "groups": ["system:authenticated"]}
        return {**review, "metadata": {**about, "creationTimestamp": moment}, "status": {"userInfo": user}}, warnings
    status = {"allowed": _is_allowed(kind, access, spec)}
    writer = FieldWriter(options.field_manager, kind.api_version, "", moment)
    said = {**review, "spec": spec}
    claims = claims_after_update({**corekinds.bare(review), "spec": {}}, said, {}, kind.schema, writer)
    return metadata.with_claims({**said, "status": status}, claims), warnings


def _is_allowed(kind: ServedResource, access: Access, spec: Json) -> bool:
    if ("resourceAttributes" in spec) is ("nonResourceAttributes" in spec):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        cause = refusals.invalid_value("spec.resourceAttributes", None, why)
        raise refusals.invalid(kind.group, "", "", [cause])
    if path := spec.get("nonResourceAttributes"):
        return access.is_allowed(path.get("verb", ""), path.get("path", ""), "", "")
    asked = spec["resourceAttributes"]
    resource = refusals.qualified(asked.get("group", ""), asked.get("resource", ""))
    return access.is_allowed(asked.get("verb", ""), resource, asked.get("namespace", ""), asked.get("subresource", ""))
