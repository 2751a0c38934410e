"""Error answers of the API server: one exception that carries a `Status` object.

The code and reason say what the caller may do: 404, 409 and 410 want a fresh read, 400, 405, 406, 415 and 422 want
another request.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]


class RefusalCause(NamedTuple):
    """One field at fault; `reason` and `field` are what the server would name."""

    field: str
    reason: str
    message: str


class StatusError(Exception):
    """A refused request; `status` is the `Status` object that the API returns."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        metadata: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}

    @property
    def status(self) -> Json:
        """The `Status` object that the API returns."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


class NoSuchPathError(Exception):
    """Nothing at all is served at a path; answered 404 in plain text, not as a `Status`."""


def qualified(group: str, plural: str) -> str:
    """`webs.example.com`, or `pods` in the legacy group."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str, causes: Sequence[RefusalCause] = ()) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if causes:
        details["causes"] = [{key: value for key, value in cause._asdict().items() if value} for cause in causes]
    return details


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[RefusalCause] = ()) -> StatusError:
    """403: understood, and refused to this user or at this moment."""
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    details = _details(name, group, plural, causes)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404: no such object."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(name, group, plural))


def no_such_resource() -> StatusError:
    """404: no such resource or path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def no_such_kind(api_version: str, kind: str) -> StatusError:
    """404: no resource of a manifest's kind, in the words of kubectl, which looks for it before it asks."""
    return StatusError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"', details={})


def method_not_allowed(what: str = "the server does not allow this method on the requested resource") -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", what, details={})


def not_acceptable(offered: str) -> StatusError:
    """406: no form of the answer that the client accepts."""
    what = "406: Not Acceptable\n\nAvailable representations"
    return StatusError(406, "NotAcceptable", f"{what}: {offered}", details={})


def unsupported_media_type(offered: str, hint: str = "") -> StatusError:
    """415: no form of the request that the server reads; the hint is the sandbox's own.

    For a patch of a core kind the server does not say what it offers.
    """
    if not offered:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    what = "the body of the request was in an unknown format - accepted media types include"
    return StatusError(415, "UnsupportedMediaType", f"{what}: {offered}{hint and f' ({hint})'}")


def internal(why: str) -> StatusError:
    """500: the server cannot do it."""
    return StatusError(500, "InternalError", f"Internal error occurred: {why}", details={"causes": [{"message": why}]})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409: another object has the name."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """409: the object is not in the state that the request demands."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(name, group, plural))


def modified(group: str, plural: str, name: str) -> StatusError:
    """409: the resourceVersion sent is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def apply_conflict(causes: Sequence[RefusalCause], message: str) -> StatusError:
    """409: other managers own fields that an apply would change."""
    details = _details("", "", "", causes)
    return StatusError(409, "Conflict", message, details=details)


def expired(message: str, continue_token: str = "") -> StatusError:
    """410: history or a list page is no longer there; `continue_token` goes on without consistency."""
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def invalid(group: str, kind: str, name: str, causes: Sequence[RefusalCause]) -> StatusError:
    """The object named by `kind` and `name` breaks its schema or a rule; each cause is one field."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{qualified_kind(group, kind)} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, details=_details(name, group, kind, causes))


def qualified_kind(group: str, kind: str) -> str:
    """`Web.example.com`, or `Pod` in the legacy group."""
    return f"{kind}.{group}" if group else kind


def required(field: str, hint: str = "") -> RefusalCause:
    """A field that must be there is not."""
    return RefusalCause(field, "FieldValueRequired", f"Required value: {hint}" if hint else "Required value")


def invalid_value(field: str, value: Any, why: str) -> RefusalCause:
    """A field has a value that it must not have."""
    return RefusalCause(field, "FieldValueInvalid", f"Invalid value: {_json(value)}: {why}")


def unsupported_value(field: str, value: Any, supported: Sequence[str]) -> RefusalCause:
    """A field has a value that is not among the supported ones."""
    listed = ", ".join(map(_json, supported))
    text = f"Unsupported value: {_json(value)}: supported values: {listed}"
    return RefusalCause(field, "FieldValueNotSupported", text)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def too_long(field: str, most: int) -> RefusalCause:
    """A text is longer than it may be."""
    return RefusalCause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def too_many(field: str, number: int, most: int) -> RefusalCause:
    """A list or map has more items than it may have."""
    plural = "" if most == 1 else "s"
    return RefusalCause(field, "FieldValueTooMany", f"Too many: {number}: must have at most {most} item{plural}")
