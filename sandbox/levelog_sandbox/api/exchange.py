"""One HTTP request: its bodies, read and written in the formats of the API."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from levelog_base.wire.projection import merge
from levelog_sandbox.api import forms, refusals
from levelog_sandbox.api.urltargets import RequestTarget, is_true
from levelog_sandbox.fields.patches import json_patch
from levelog_sandbox.fields.strategic import strategic_merge_patch
from levelog_sandbox.objects.cluster import Cluster
from levelog_sandbox.objects.incoming import Options
from levelog_sandbox.objects.verbs import Outcome
from levelog_sandbox.schemas.shapes import Schema

Json = dict[str, Any]

MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PATCH_TYPES: Final = (JSON_PATCH, MERGE, APPLY)
YAML: Final = "application/yaml"
BODY_TYPES: Final = ("application/json", YAML)
# As the server says it; the sandbox has no protobuf, and its answers are JSON.
SERVED: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_NO_PROTOBUF: Final = (
    "the sandbox reads JSON and YAML, no protobuf: add --dry-run=client -o yaml | kubectl create -f -, which sends JSON"
)


class Exchange:
    """One request on its way: what is logged about it is gathered here."""

    def __init__(self, cluster: Cluster, request: web.Request) -> None:
        self.cluster = cluster
        self.request = request
        self.query: Mapping[str, str] = request.query
        self.user_agent = request.headers.get("User-Agent", "")
        self.target: RequestTarget | None = None
        self.verb = ""
        self.changed = False
        self.is_logged = False

    @property
    def field_manager(self) -> str:
        """As the server names a writer that does not name itself: the user agent up to its first slash."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0][:128] or "unknown"

    def log(self, code: int) -> None:
        """Add the request to the log, once; requests that name no resource are not logged."""
        if self.target is None or self.is_logged:
            return
        self.is_logged = True
        is_write = self.verb in {"create", "update", "patch", "apply"}
        self.cluster.log(
            self.target,
            self.verb,
            method=self.request.method,
            path=self.request.path_qs,
            user_agent=self.user_agent,
            field_manager=self.field_manager if is_write else "",
            status_code=code,
            changed=self.changed,
        )


def accepted(exchange: Exchange) -> forms.Form:
    """The form that the client wants. Raises `StatusError` 406."""
    form = forms.form(exchange.request.headers.get("Accept", ""))
    if form is None:
        raise refusals.not_acceptable(SERVED)
    return form


def write_options(exchange: Exchange, subresource: str = "") -> Options:
    """The options of a write in the query."""
    query = exchange.query
    return Options(
        field_manager=exchange.field_manager,
        subresource=subresource,
        is_dry_run=bool(query.get("dryRun")),
        is_forced=is_true(query.get("force", "false")),
        field_validation=query.get("fieldValidation") or "Warn",
    )


async def body_of(exchange: Exchange) -> bytes:
    """The request's body. Raises `StatusError` 415 for a type that is not read, 413 for one that is too large."""
    request = exchange.request
    if request.method != "PATCH" and "Content-Type" in request.headers and request.content_type not in BODY_TYPES:
        raise refusals.unsupported_media_type(SERVED, _NO_PROTOBUF)
    return await request.read()


def decoded(exchange: Exchange, raw: bytes) -> Any:
    """A request's body, read as its type says. Raises `StatusError` 400."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if exchange.request.content_type not in (YAML, APPLY):
            raise refusals.bad_request(f"the object provided is unrecognized: json parse error: {error}") from error
    from levelog_base.wire.manifests import documents  # noqa: PLC0415 - few clients send YAML, and it is slow to load

    for document in documents(raw, is_strict=False):
        if document.error:
            raise refusals.bad_request(f"error decoding YAML: line {document.line}: {document.error}")
        return document.value
    return None


def patch(content_type: str, body: Any, schema: Schema | None) -> Callable[[Json], Any]:
    """The change that a patch's body describes; a custom resource passes no schema. Raises `StatusError` 415."""
    if content_type == STRATEGIC and schema is not None:
        return lambda live: strategic_merge_patch(live, body, schema)
    if content_type == MERGE:
        return lambda live: merge(live, body)
    if content_type == JSON_PATCH:
        return lambda live: json_patch(live, body)
    raise refusals.unsupported_media_type(", ".join(PATCH_TYPES) if schema is None else "")


def deleted(at: RequestTarget, outcome: Outcome) -> Json:
    """The answer to a delete after which nothing is left."""
    details: Json = {"name": at.name, "kind": at.resource.plural, "uid": outcome.stored.uid}
    if at.resource.group:
        details["group"] = at.resource.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def warned(response: web.Response, warnings: Sequence[str]) -> web.Response:
    """The answer with its warnings."""
    for warning in warnings:
        response.headers.add("Warning", f'299 - "{warning.replace(chr(34), chr(92) + chr(34))}"')
    return response


def json_response(body: Any, code: int = 200) -> web.Response:
    """An answer encoded now."""
    return json_bytes(msgspec.json.encode(body), code)


def json_bytes(body: bytes, code: int = 200) -> web.Response:
    """An answer encoded before."""
    return web.Response(body=body, status=code, content_type="application/json")
