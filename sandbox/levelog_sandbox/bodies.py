"""Small questions to an object's body: is it the same, is it gone, who claims its fields."""

from typing import Any

import msgspec

from levelog_sandbox.ownership import Claims, write_claims
from levelog_sandbox.store import Stored

Json = dict[str, Any]


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


def same(first: Any, second: Any) -> bool:
    """Equality as JSON: unlike Python's, 1 is not true."""
    encode = msgspec.json.encode
    return bool(first == second) and encode(first, order="deterministic") == encode(second, order="deterministic")
