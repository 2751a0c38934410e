"""The HTTP server of a cluster: routes, runs, logs and answers each request; errors become `Status` objects."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from levelog_sandbox.api import catalog, forms, refusals
from levelog_sandbox.api.exchange import (
    APPLY,
    Exchange,
    accepted,
    body_of,
    decoded,
    deleted,
    json_bytes,
    json_response,
    patch,
    warned,
    write_options,
)
from levelog_sandbox.api.origins import refuse_pages
from levelog_sandbox.api.reviews import reviewed
from levelog_sandbox.api.streaming import stream
from levelog_sandbox.api.urltargets import RequestTarget, review, target, verb_of
from levelog_sandbox.objects import pages
from levelog_sandbox.objects.cluster import Cluster
from levelog_sandbox.objects.deletion import RETURNED, DeleteOptions
from levelog_sandbox.objects.verbs import Outcome
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]

# Origin: the request body limit of kube-apiserver (MaxRequestBodyBytes).
MOST_BODY_BYTES: Final = 3 * 1024 * 1024


Refuses = Callable[[str, str, str, str], int]

_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Server:
    """Answers requests from a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        bookmark_seconds: float,
        refuses: Refuses | None = None,
        names: Collection[str] = (),
        read_only: str = "",
    ) -> None:
        self._cluster = cluster
        self._read_only = read_only
        self._names = names
        self._refuses = refuses
        self._bookmark_seconds = bookmark_seconds

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(client_max_size=MOST_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self.handle)
        return application

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        exchange = Exchange(self._cluster, request)
        try:
            refuse_pages(request.headers, self._names)
            response = await self._answer(exchange)
        except refusals.StatusError as refused:
            response = json_response(refused.status, refused.code)
        except refusals.NoSuchPathError:
            response = web.Response(status=404, text="404 page not found\n")
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {MOST_BODY_BYTES}"
            too_large = refusals.StatusError(413, "RequestEntityTooLarge", message)
            response = json_response(too_large.status, too_large.code)
        except RecursionError:
            too_deep = refusals.bad_request("the object provided is nested too deep")
            response = json_response(too_deep.status, too_deep.code)
        exchange.log(response.status)
        return response

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        request = exchange.request
        if kind := review(self._cluster.registry, request.path):
            return await self._review(exchange, kind)
        exchange.target = target(self._cluster.registry, request.path)
        if exchange.target is None:
            return await self._elsewhere(request)
        exchange.verb = verb_of(request.method, exchange.target, exchange.query)
        content = request.content_type
        if exchange.verb == "patch" and content == APPLY:
            exchange.verb = "apply"
        self._cluster.access.require(exchange.verb, exchange.target)
        self._refuse_if_told(exchange.verb, exchange.target)
        match exchange.verb:
            case "get":
                return self._get(exchange, exchange.target)
            case "list":
                return self._list(exchange, exchange.target)
            case "watch":
                return await stream(exchange, exchange.target, self._bookmark_seconds)
            case "delete":
                return await self._delete(exchange, exchange.target)
            case "deletecollection":
                return await self._delete_collection(exchange, exchange.target)
            case "create" | "update" | "patch" | "apply":
                return await self._write(exchange, exchange.target)
            case _:
                raise refusals.method_not_allowed()

    def _refuse_if_told(self, verb: str, at: RequestTarget) -> None:
        if verb in {"get", "list", "watch"}:
            return
        if self._read_only:
            raise refusals.StatusError(
                403, _REASONS[403], f"{verb} {at.resource.name} {at.name} is forbidden: {self._read_only}"
            )
        if self._refuses is None:
            return
        if code := self._refuses(verb, at.resource.name, at.namespace, at.name):
            raise refusals.StatusError(
                code, _REASONS.get(code, ""), f"{verb} {at.resource.name} {at.name}: refused as told"
            )

    async def _elsewhere(self, request: web.Request) -> web.Response:
        """Paths that name no resource: health, version, discovery, OpenAPI."""
        registry = self._cluster.registry
        parts = [part for part in request.path.split("/") if part]
        answer: Json | None = None
        match parts:
            case ["readyz" | "livez" | "healthz", *_]:
                return web.Response(text="ok")
            case ["sandbox", "requests"] if request.method == "GET":
                return self._requests(request.query)
            case ["version"]:
                answer = catalog.VERSION
            case ["openapi", "v3"]:
                answer = catalog.index(registry)
            case ["openapi", "v3", *root]:
                answer = catalog.document(registry, "/".join(root))
            case ["api"]:
                answer = catalog.core_versions(request.host)
            case ["apis"]:
                answer = catalog.group_list(registry)
            case ["api", version]:
                answer = catalog.resource_list(registry, "", version)
            case ["apis", group]:
                answer = catalog.group(registry, group)
            case ["apis", group, version]:
                answer = catalog.resource_list(registry, group, version)
            case _:
                pass
        if answer is None:
            raise refusals.NoSuchPathError(request.path)
        return json_response(answer)

    def _requests(self, query: Mapping[str, str]) -> web.Response:
        """The request log, a line of JSON each: `?since=NUMBER`, `?user_agent=PREFIX`, `?changed` for writes only."""
        try:
            since = int(query.get("since", 0))
        except ValueError:
            raise refusals.StatusError(400, "BadRequest", f"since={query['since']} is no number") from None
        log = self._cluster.requests
        lines = log.since(since, user_agent=query.get("user_agent", ""))
        if "changed" in query:
            lines = [line for line in lines if line.changed]
        return web.Response(body=msgspec.json.Encoder().encode_lines(lines), content_type="application/x-ndjson")

    def _get(self, exchange: Exchange, at: RequestTarget) -> web.Response:
        form = accepted(exchange)
        pages.check_reached(self._cluster.store, exchange.query.get("resourceVersion", ""))
        if at.subresource == "scale":
            kind, stored = self._cluster.scales.kind, self._cluster.scales.get(at.resource, at.namespace, at.name)
        else:
            kind, stored = at.resource, self._cluster.writes.live(at.resource, at.namespace, at.name)
        if form == "object":
            return json_bytes(stored.encoded_as(kind))
        body = stored.body_as(kind)
        version = {"resourceVersion": body["metadata"]["resourceVersion"]}
        return json_response(forms.table(kind, [body], version))

    def _list(self, exchange: Exchange, at: RequestTarget) -> web.Response:
        form = accepted(exchange)
        page = pages.list_page(self._cluster.store, at.resource, at.namespace, exchange.query)
        if form == "object":
            return json_bytes(pages.encode_list(at.resource, page))
        bodies = [stored.body_as(at.resource) for stored in page.objects]
        about = pages.list_metadata(at.resource, page)
        return json_response(forms.table(at.resource, bodies, about))

    async def _write(self, exchange: Exchange, at: RequestTarget) -> web.Response:
        accepted(exchange)
        raw = await body_of(exchange)
        options = write_options(exchange, at.subresource)
        is_scale = at.subresource == "scale"
        writes = self._cluster.scales if is_scale else self._cluster.writes
        kind = self._cluster.scales.kind if is_scale else at.resource
        outcome: Outcome
        match exchange.verb:
            case "create" if not at.name:
                outcome = self._cluster.writes.create(at.resource, at.namespace, decoded(exchange, raw), options)
            case "update" if at.name:
                outcome = writes.replace(at.resource, at.namespace, at.name, decoded(exchange, raw), options)
            case "apply" if at.name:
                if not exchange.query.get("fieldManager"):
                    cause = refusals.required("fieldManager", "is required for apply patch")
                    raise refusals.invalid("meta.k8s.io", "PatchOptions", "", [cause])
                outcome = writes.apply(at.resource, at.namespace, at.name, decoded(exchange, raw), options)
            case "patch" if at.name:
                schema = None if at.resource.is_custom else kind.schema
                change = patch(exchange.request.content_type, decoded(exchange, raw), schema)
                outcome = writes.patch(at.resource, at.namespace, at.name, change, options)
            case _:
                raise refusals.method_not_allowed()
        exchange.changed = outcome.changed
        if not at.name:
            exchange.target = at._replace(name=outcome.stored.name)
        return warned(json_bytes(outcome.stored.encoded_as(kind), outcome.code), outcome.warnings)

    async def _review(self, exchange: Exchange, kind: ServedResource) -> web.Response:
        if exchange.request.method != "POST":
            raise refusals.method_not_allowed()
        accepted(exchange)
        raw, access, options = await body_of(exchange), self._cluster.access, write_options(exchange)
        answer, warnings = reviewed(access, kind, decoded(exchange, raw), options, self._cluster.clock)
        return warned(json_response(answer, 201), warnings)

    async def _delete(self, exchange: Exchange, at: RequestTarget) -> web.Response:
        options = await self._delete_options(exchange)
        outcome = self._cluster.deletion.delete(at.resource, at.namespace, at.name, options)
        exchange.changed = outcome.changed
        if not outcome.gone or at.resource.name in RETURNED:
            return json_bytes(outcome.stored.encoded_as(at.resource), outcome.code)
        return json_response(deleted(at, outcome), outcome.code)

    async def _delete_collection(self, exchange: Exchange, at: RequestTarget) -> web.Response:
        options = await self._delete_options(exchange)
        matches = pages.selection(at.resource, exchange.query)
        outcomes = self._cluster.deletion.delete_collection(at.resource, at.namespace, matches, options)
        exchange.changed = any(outcome.changed for outcome in outcomes)
        page = pages.Page([outcome.stored for outcome in outcomes], self._cluster.store.revision, "", None)
        return json_bytes(pages.encode_list(at.resource, page))

    async def _delete_options(self, exchange: Exchange) -> DeleteOptions:
        raw = await body_of(exchange)
        return DeleteOptions.read(decoded(exchange, raw) if raw else {}, exchange.query)
