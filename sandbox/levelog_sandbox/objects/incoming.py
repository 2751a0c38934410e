"""From a request's body to an object to store: kind, namespace, unknown fields, defaults."""

from dataclasses import dataclass
from typing import Any, Final, cast

from levelog_sandbox.api import refusals
from levelog_sandbox.objects.revisions import ENCODER
from levelog_sandbox.schemas.registry import ServedResource
from levelog_sandbox.schemas.shapes import ANY, Schema
from levelog_sandbox.schemas.validation import defaulted, misfit, pruned, typing_error, typing_faults, unknown_fields

Json = dict[str, Any]

_OWNERS_TWICE: Final = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed:"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to write: `subresource` is empty, status or scale; `field_validation` Ignore, Warn, Strict."""

    field_manager: str
    subresource: str = ""
    is_dry_run: bool = False
    is_forced: bool = False
    field_validation: str = "Warn"


def incoming(resource: ServedResource, namespace: str, body: Any, options: Options) -> tuple[Json, tuple[str, ...]]:
    """The body at its stored version, pruned and with defaults, and warnings about unknown fields.

    Raises `StatusError` 400 when it is another kind's, does not fit a core kind's types, or has unknown fields under
    strict validation.
    """
    body = _of_kind(resource, body)
    _check_namespace(namespace, body)
    entries = body["metadata"].pop("managedFields", None)
    unfit = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    if wrong := first_misfit(resource, body):
        raise refusals.bad_request(f"{unfit}: {wrong}")
    warnings: tuple[str, ...] = ()
    if options.field_validation != "Ignore":
        warnings = tuple(unknown_fields(body, resource.schema))
    if warnings and options.field_validation == "Strict":
        raise refusals.bad_request(f"{unfit}: strict decoding error: {', '.join(warnings)}")
    body = _typed(resource, body)
    owners = body["metadata"].get("ownerReferences", [])
    if twice := [each for number, each in enumerate(owners) if each in owners[:number]]:
        body["metadata"]["ownerReferences"] = [
            each for number, each in enumerate(owners) if each not in owners[:number]
        ]
        warnings += (f"{_OWNERS_TWICE} {', '.join(dict.fromkeys(each.get('uid', '') for each in twice))}",)
    body = defaulted(pruned(body, resource.schema), resource.schema)
    if entries is not None:
        body["metadata"]["managedFields"] = entries
    return at_stored_version(resource, body), warnings


def first_misfit(resource: ServedResource, body: Json) -> str:
    """The first value that no Go struct takes: of a core kind, or in the metadata of a custom one; empty: all fit."""
    if resource.is_custom:
        found = misfit(body.get("metadata"), resource.schema.child("metadata")[0], "ObjectMeta")
    else:
        found = misfit(body, resource.schema, resource.kind)
    return found.text if found else ""


def unfit_patch(resource: ServedResource, body: Any, options: Options) -> refusals.StatusError | None:
    """The refusal of a patch, 422, when what it makes does not fit the kind; None when it fits."""
    wrong = "" if resource.is_custom or not isinstance(body, dict) else first_misfit(resource, body)
    if not wrong and options.field_validation == "Strict":
        unknown = unknown_fields(body, resource.schema)
        wrong = f"strict decoding error: {', '.join(unknown)}" if unknown else ""
    if not wrong:
        return None
    return refusals.invalid("", "", "", [refusals.invalid_value("patch", ENCODER.encode(body).decode(), wrong)])


def at_stored_version(resource: ServedResource, body: Json) -> Json:
    """The body as it is stored."""
    return resource.to_stored(body) if resource.to_stored else {**body, "apiVersion": resource.stored_version}


def applied(resource: ServedResource, namespace: str, name: str, body: Any, subresource: str) -> Json:
    """An applied configuration at its stored version, less the half that the request may not write.

    Raises `StatusError` 400 when it names another object than the URL, 500 when it does not fit its schema.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise refusals.bad_request("error decoding YAML: the body is not an object")
    version, kind = body.get("apiVersion", "/"), body.get("kind", "")
    if (version, kind) != (resource.api_version, resource.kind):
        raise refusals.bad_request(f"invalid object type: {version}, Kind={kind}")
    said = {**body, "metadata": dict(body.get("metadata") or {})}
    about = said["metadata"]
    if about.get("managedFields"):
        raise refusals.bad_request("metadata.managedFields must be nil")
    if about.get("name", name) != name:
        raise refusals.bad_request(misnamed(about["name"], name))
    _check_namespace(namespace, said)
    if found := typing_faults(said, resource.schema):
        what = f"{about.get('namespace', '')}/{name}; {_gvk(resource)}"
        raise refusals.StatusError(500, "", f"failed to create typed patch object ({what}): {typing_error(found)}")
    if subresource:
        kept = {key: about[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in about}
        said = {"apiVersion": said["apiVersion"], "kind": said["kind"], "metadata": kept}
        half = "spec" if subresource == "scale" else subresource
        said |= {half: body[half]} if half in body else {}
    elif resource.has_status:
        said.pop("status", None)
    return at_stored_version(resource, _typed(resource, said, keeps_empty=True))


def misnamed(given: Any, name: str) -> str:
    """The refusal of a body that names another object than the URL, or none."""
    if not given:
        return f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    return f"the name of the object ({given}) does not match the name on the URL ({name})"


def _typed(resource: ServedResource, body: Json, *, keeps_empty: bool = False) -> Json:
    """A body whose typed part is as Go's structs hold it: of a core kind all, of a custom one the metadata."""
    schema = resource.schema
    if not resource.is_custom:
        return cast("Json", as_structs(body, schema, keeps_empty=keeps_empty))
    metadata = as_structs(body["metadata"], schema.child("metadata")[0], keeps_empty=keeps_empty)
    return {**body, "metadata": metadata}


_ZEROS: Final[Json] = {"string": "", "object": {}, "integer": 0, "number": 0, "boolean": False}


def as_structs(value: Any, schema: Schema, *, keeps_empty: bool = False) -> Any:
    """What is typed on the server, as Go's structs hold it: without nulls, and a null in a map or list is its zero.

    Nor with empty lists and maps, unless they are kept: where optional, they are the same as absent.
    """
    if isinstance(value, dict):
        kept: Json = {}
        for key, given in value.items():
            child, is_field = schema.child(key)
            is_collection = child.type == "array" or (child.fields is None and child.element is not None)
            is_optional = is_field and key not in schema.required and not keeps_empty
            item = _ZEROS.get(child.type) if given is None and not is_field else given
            if item is not None and not (is_optional and is_collection and item in ([], {})):
                kept[key] = as_structs(item, child, keeps_empty=keeps_empty)
        return kept
    if isinstance(value, list):
        child = schema.element or ANY
        items = (_ZEROS.get(child.type) if item is None else item for item in value)
        return [as_structs(item, child, keeps_empty=keeps_empty) for item in items]
    return value


def _gvk(resource: ServedResource) -> str:
    return f"{resource.api_version}, Kind={resource.kind}"


def _of_kind(resource: ServedResource, body: Any) -> Json:
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        why = f"the object provided is unrecognized (must be of type {resource.kind}): it is not an object"
        raise refusals.bad_request(why)
    if resource.is_custom and not (body.get("apiVersion") and body.get("kind")):
        why = f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        raise refusals.bad_request(why)
    version, kind = body.get("apiVersion") or resource.api_version, body.get("kind") or resource.kind
    if version != resource.api_version:
        why = (
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
        raise refusals.bad_request(why)
    about = dict(body.get("metadata") or {})
    if kind != resource.kind:
        if not resource.is_custom:
            why = f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: unknown conversion'
            raise refusals.bad_request(why)
        cause = refusals.invalid_value("kind", kind, f"must be {resource.kind}")
        raise refusals.invalid(resource.group, kind, about.get("name", ""), [cause])
    return {**body, "apiVersion": version, "kind": kind, "metadata": about}


def _check_namespace(namespace: str, body: Json) -> None:
    given = body["metadata"].get("namespace")
    if namespace and given not in {None, "", namespace}:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise refusals.bad_request(why)
