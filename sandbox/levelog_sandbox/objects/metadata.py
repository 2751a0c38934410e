"""What the server sets in `metadata`: names, uids, timestamps, generations; and what a writer may not change."""

import random
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.fields.ownership import Claims, write_claims
from levelog_sandbox.objects.revisions import Stored
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]
Clock = Callable[[], datetime]

# Origin: k8s.io/apimachinery/pkg/util/rand, without vowels and look-alikes.
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_KEY_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NAMED_BY_LABEL: Final = frozenset({"namespaces", "services"})
_NAMED_BY_SEGMENT: Final = "rbac.authorization.k8s.io"
"""Group whose names, as `system:node`, may be any segment of a path."""
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
"""Origin: TotalAnnotationSizeLimitB in k8s.io/apimachinery/pkg/api/validation."""
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
SET_BY_SERVER: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def for_create(resource: ServedResource, metadata: Json, namespace: str, now: datetime) -> Json:
    """The metadata of a new object: what the client may set, with name, uid, time and generation."""
    created = _without_what_the_server_sets(metadata)
    if not created.get("name") and created.get("generateName"):
        suffix = "".join(random.choices(_SUFFIX_ALPHABET, k=5))  # noqa: S311 - a name, not a secret
        created["name"] = created["generateName"][:58] + suffix
    if resource.namespaced:
        created["namespace"] = namespace
    else:
        created.pop("namespace", None)
    created["uid"] = str(uuid.uuid4())
    created["creationTimestamp"] = timestamp(now)
    if resource.has_generation:
        created["generation"] = 1
    return created


def for_update(resource: ServedResource, live: Json, new: Json) -> Json:
    """The metadata of a replaced object; what only the server sets stays as it is.

    Raises `StatusError` 409 when the client names another uid or resourceVersion.
    """
    name = live["name"]
    if new.get("uid") and new["uid"] != live["uid"]:
        why = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {live['uid']}"
        raise refusals.conflict(resource.group, resource.plural, name, why)
    if new.get("resourceVersion") and new["resourceVersion"] != live["resourceVersion"]:
        raise refusals.modified(resource.group, resource.plural, name)
    updated = _without_what_the_server_sets(new)
    for key in ("name", "namespace", "resourceVersion", *SET_BY_SERVER):
        if key in live:
            updated[key] = live[key]
    if live.get("generateName") and "generateName" not in updated:
        updated["generateName"] = live["generateName"]
    return updated


def _without_what_the_server_sets(metadata: Json) -> Json:
    """Empty collections go too: on the server metadata is typed, and empty is the same as absent."""
    dropped = {*SET_BY_SERVER, "managedFields", "selfLink"}
    return {key: value for key, value in metadata.items() if key not in dropped and value not in (None, {}, [], "")}


def is_label_key(key: str) -> bool:
    """Whether a text may be the key of a label."""
    return bool(_LABEL_KEY.fullmatch(key))


def _faults_of_name(resource: ServedResource, name: str) -> list[str]:
    if resource.group == _NAMED_BY_SEGMENT:
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{character}'" for character in "/%" if character in name]
    found: list[str] = []
    by_label = resource.name in NAMED_BY_LABEL
    if by_label and "." in name:
        found.append("must not contain dots")
    elif not (_LABEL if by_label else _SUBDOMAIN).fullmatch(name):
        found.append(_LABEL_RULE if by_label else _SUBDOMAIN_RULE)
    longest = 63 if by_label else 253
    if len(name) > longest:
        found.append(f"must be no more than {longest} characters")
    return found


def faults(resource: ServedResource, metadata: Json) -> list[refusals.RefusalCause]:
    """The faults of names and labels, in the words of the server."""
    name = metadata.get("name")
    if not name:
        return [refusals.required("metadata.name", "name or generateName is required")]
    found = [refusals.invalid_value("metadata.name", name, why) for why in _faults_of_name(resource, name)]
    for key, value in (metadata.get("labels") or {}).items():
        if not is_label_key(key):
            found.append(refusals.invalid_value("metadata.labels", key, _LABEL_KEY_RULE))
        found += faults_of_label("metadata.labels", value)
    annotations: Json = metadata.get("annotations") or {}
    wrong = [key for key in annotations if not is_label_key(key.lower())]
    found += [refusals.invalid_value("metadata.annotations", key, _LABEL_KEY_RULE) for key in wrong]
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > _MOST_ANNOTATION_BYTES:
        found.append(refusals.too_long("metadata.annotations", _MOST_ANNOTATION_BYTES))
    for number, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not is_label_key(finalizer):
            found.append(refusals.invalid_value("metadata.finalizers", finalizer, _LABEL_KEY_RULE))
        if resource.has_qualified_finalizers and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(refusals.invalid_value(f"metadata.finalizers[{number}]", finalizer, why))
    return found + _owner_faults(metadata.get("ownerReferences") or ())


def faults_of_label(field: str, value: str) -> list[refusals.RefusalCause]:
    """The faults of a label's value, which stands in a field."""
    whys = ["must be no more than 63 bytes"] if len(value) > 63 else []
    whys += [] if _LABEL_VALUE.fullmatch(value) else [_LABEL_VALUE_RULE]
    return [refusals.invalid_value(field, value, why) for why in whys]


def _owner_faults(owners: Sequence[Json]) -> list[refusals.RefusalCause]:
    found: list[refusals.RefusalCause] = []
    first = ""
    for owner in owners:
        missing = [field for field in ("apiVersion", "kind", "name", "uid") if not owner.get(field)]
        found += [
            refusals.invalid_value(f"metadata.ownerReferences.{field}", "", "must not be empty") for field in missing
        ]
        if owner.get("controller") and first:
            why = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {first} and {owner.get("kind")}/{owner.get("name")}'
            )
            found.append(refusals.invalid_value("metadata.ownerReferences", owners, why))
        elif owner.get("controller"):
            first = f"{owner.get('kind')}/{owner.get('name')}"
    return found


def is_gone(body: Json) -> bool:
    """Whether an object was only waiting for its finalizers, and has none left."""
    about = body["metadata"]
    if "deletionTimestamp" not in about or about.get("finalizers") or about.get("deletionGracePeriodSeconds", 0):
        return False
    return not body.get("spec", {}).get("finalizers") if body["kind"] == "Namespace" else True


def unsaved(body: Json) -> Stored:
    """A body as if it were stored, at the revision that it names."""
    about = body["metadata"]
    return Stored(about.get("namespace", ""), about["name"], body, int(about.get("resourceVersion") or 0))


def without_claims(body: Json) -> Json:
    """The body without managedFields."""
    about = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": about}


def with_claims(body: Json, claims: Claims) -> Json:
    """The body with these managedFields, and with apiVersion and kind first."""
    about = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    if claims:
        about["managedFields"] = write_claims(claims)
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], **body, "metadata": about}
