"""An intent as it is sent: its request, with guards against another incarnation, its rights, and the reply to it."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from itertools import dropwhile
from typing import Any, Final, assert_never
from urllib.parse import quote

import msgspec
from msgspec import Struct

from levelog.intents import IntentOptions, Verb
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import ObjectKey, field_manager
from levelog_kube.client import KubeClient
from levelog_kube.discovery import root_path
from levelog_kube.requestfailures import ApiError, FailureCause, NoAnswer, Unreachable
from levelog_store.actuate.claims import ClaimedIntent

MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML
ABSENT: Final = 1
"""A resourceVersion that no object has, since etcd begins there: an apply with it makes an object, or conflicts."""
_CHANGES: Final = ("add", "replace", "remove")
"""Operations of a JSON patch that change one path alone."""
_OF_REFUSALS: Final = ("status", "reason", "message", "causes", "retry_after")


class Right(Struct, frozen=True):
    """A verb of the API on a resource, or on a subresource of it."""

    verb: str
    subresource: str = ""


_LOOK: Final = Right("get")
"""Asked for a target that the decision did not see, and after a request whose effect is not known."""

RIGHTS: Final[Mapping[Verb, tuple[Right, ...]]] = {
    "apply": (_LOOK, Right("patch"), Right("create")),  # a server-side apply of what is not there needs both
    "create": (_LOOK, Right("create")),
    "patch": (_LOOK, Right("patch")),
    "patch_status": (_LOOK, Right("patch", "status")),
    "delete": (_LOOK, Right("delete")),
    "event": (_LOOK, Right("patch"), Right("create")),  # of Events, not of what they are about
}
"""Verbs of the API by the verb of the intent."""


class Order(Struct, frozen=True, kw_only=True):
    """A claimed intent, decoded."""

    intent: ClaimedIntent
    verb: Verb
    target: ObjectKey
    options: IntentOptions
    body: Any
    """A manifest, a patch, or None."""
    shown: Any = None
    """The body as it may be seen: redacted."""
    secrets: frozenset[str] = frozenset()
    """Values of the body that may not be seen."""

    @classmethod
    def read(cls, intent: ClaimedIntent, redactor: Redactor) -> "Order":
        """Decode a row, and decrypt it if it is encrypted.

        Raises msgspec.MsgspecError for a row that no version of levelog wrote, and ConfigurationError if it was
        encrypted with another key.
        """
        target, shown = ObjectKey.parse(intent.target), msgspec.json.decode(intent.body)
        body, secrets = shown, frozenset[str]()
        if intent.sealed is not None:
            body = msgspec.json.decode(redactor.unseal(intent.sealed, intent.key))
            secrets = redactor.redact_content(target, body).secrets
        return cls(
            intent=intent,
            verb=_verb(intent.verb),
            target=target,
            options=msgspec.json.decode(intent.options, type=IntentOptions),
            body=body,
            shown=shown,
            secrets=secrets,
        )

    @property
    def field_manager(self) -> str:
        """The one field manager of the operator that decided."""
        return field_manager(self.intent.view.partition("/")[0])

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.verb} {self.target}"

    @property
    def path(self) -> str:
        """Path of the target."""
        return path_of(self.target, self.intent.api_version)

    @property
    def makes_object(self) -> bool:
        """The target may come into being by it: the decision saw none."""
        return self.verb == "create" or (self.verb == "apply" and not self.intent.target_uid)

    @property
    def is_versioned(self) -> bool:
        """It is sent for one version of the target, not only for one incarnation.

        A status is, because kube-apiserver ignores the uid in patches of the status of a custom resource. A JSON patch
        is, because it need not give the same result when it arrives twice, unless it tests what it changes.
        """
        is_untested = self._is_json and not self.is_tested
        return self.options.if_unchanged or is_untested or self.verb == "patch_status"

    @property
    def is_tested(self) -> bool:
        """It is a JSON patch that first tests the value of all that it changes: another value refuses it."""
        return self._is_json and _tests_itself(self.body)

    @property
    def _is_json(self) -> bool:
        return self.verb == "patch" and self.options.patch_type == "json"

    @property
    def controller(self) -> str:
        """Uid of the owner that must control the target, for an apply or a create that of the manifest; empty: any."""
        if self.verb in ("apply", "create"):
            owners = (self.body.get("metadata") or {}).get("ownerReferences") or ()
            return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")
        is_own = self.intent.target == self.intent.parent
        return self.intent.parent_uid if self.verb == "delete" and self.options.owned and not is_own else ""

    @property
    def is_in_reach(self) -> bool:
        """The parent can own the target: owners do not reach into another namespace."""
        return ObjectKey.parse(self.intent.parent).namespace in ("", self.target.namespace)

    @property
    def first_guard(self) -> "Precondition":
        """The guard for what the decision saw; an apply that gives an object an owner makes one, or does nothing."""
        if self.verb == "apply" and self.makes_object and self.controller:
            return Precondition(version=ABSENT)
        return Precondition(uid=self.intent.target_uid, version=self.intent.target_version if self.is_versioned else 0)


class Precondition(Struct, frozen=True, kw_only=True):
    """What the target has to be for a write to take effect: uid and resourceVersion; empty and 0: anything."""

    uid: str = ""
    version: int = 0

    @property
    def metadata(self) -> dict[str, str]:
        """The guard as the API takes it, in metadata and in preconditions."""
        return ({"uid": self.uid} if self.uid else {}) | (
            {"resourceVersion": str(self.version)} if self.version else {}
        )


class Request(Struct, frozen=True, kw_only=True):
    """One request to the API."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    status: int
    """HTTP status; 0: no answer came."""
    is_sent: bool = True
    """False: no connection could be made, so that the server never saw it."""
    reason: str = ""
    message: str = ""
    causes: tuple[FailureCause, ...] = ()
    retry_after: timedelta | None = None
    body: bytes = b""

    @property
    def is_unfit(self) -> bool:
        """It refuses what was sent, as 422 does, though its status is that of a fault of the server."""
        return self.status == 500 and _UNFIT.match(self.message) is not None

    @property
    def is_passing(self) -> bool:
        """The same request may be answered otherwise later."""
        return self.status in {0, 401, 408, 429} or self.status >= 500

    @property
    def counts_as(self) -> int:
        """The HTTP status that says what it means."""
        return 422 if self.is_unfit else self.status


_UNFIT: Final = re.compile(
    r"failed to create typed (patch|live) object"
    r"|failed to convert new object .* to proper version: unable to convert unstructured object to"
    r"|etcdserver: request is too large|rpc error: .* trying to send message larger than max"
)
"""How kube-apiserver 1.36 words it: structuredmerge.go of apimachinery, and etcd's limits of 1.5 and 2 MiB.

A conversion that fails is told from one by a webhook, which may be away.
"""


async def ask(
    client: KubeClient, request: Request, limit: timedelta, may_send: Callable[[], bool] = lambda: True
) -> Reply:
    """Send a request; its reply, whatever that is. Raises Withheld if, at the last moment, it may not be sent."""
    try:
        answer = await client.request(
            request.method,
            request.path,
            query=request.query,
            body=request.body,
            content_type=request.content_type,
            timeout=limit,
            may_send=may_send,
        )
    except ApiError as error:
        return Reply(**{name: getattr(error, name) for name in _OF_REFUSALS})
    except (Unreachable, NoAnswer) as error:
        return Reply(status=0, is_sent=isinstance(error, NoAnswer), message=str(error))
    return Reply(status=answer.status, body=answer.body)


@lru_cache
def _verb(text: str) -> Verb:
    verb: Verb = msgspec.convert(text, Verb)
    return verb


def write_request(order: Order, guard: Precondition, deadline: timedelta, *, is_dry: bool = False) -> Request:
    """The request for an intent; it tells the server to give up shortly before the deadline.

    A dry one is answered as if it had been carried out, and is not.
    """
    query = {"timeout": f"{max(1, int(deadline.total_seconds()) - 1)}s"}
    if is_dry:
        query["dryRun"] = "All"
    path = order.path
    if order.verb == "delete":
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": order.options.propagation,
            "preconditions": guard.metadata,
        } | ({"dryRun": ["All"]} if is_dry else {})  # the server reads the options of a deletion from the body alone
        return Request(method="DELETE", path=path, query=query, body=msgspec.json.encode(options))
    query["fieldManager"] = order.field_manager
    match order.verb:
        case "apply":
            if order.options.force:
                query["force"] = "true"
            return patch_request(path, query, _guarded(order.body, guard), _APPLY_PATCH)
        case "create":
            collection = path.rpartition("/")[0]
            return Request(method="POST", path=collection, query=query, body=msgspec.json.encode(order.body))
        case "patch":
            if order.options.patch_type == "json":
                return patch_request(path, query, _tested(order.body, guard), _JSON_PATCH)
            return patch_request(path, query, _guarded(order.body, guard), MERGE_PATCH)
        case "patch_status":
            return patch_request(f"{path}/status", query, _guarded(order.body, guard), MERGE_PATCH)
        case "call" | "event":
            raise AssertionError(f"a {order.verb} is no write of its target")
        case _:
            assert_never(order.verb)


def path_of(key: ObjectKey, api_version: str) -> str:
    """Path of an object that is served as `apps/v1`."""
    version = api_version.rpartition("/")[2]
    namespace = f"/namespaces/{quote(key.namespace, safe='')}" if key.namespace else ""
    return f"{root_path(key.group, version)}{namespace}/{quote(key.resource, safe='')}/{quote(key.name, safe='')}"


def patch_request(path: str, query: Mapping[str, str], body: Any, content_type: str) -> Request:
    """A request that patches an object."""
    return Request(method="PATCH", path=path, query=query, body=msgspec.json.encode(body), content_type=content_type)


def _guarded(body: Mapping[str, Any], guard: Precondition) -> dict[str, Any]:
    metadata = {**(body.get("metadata") or {}), **guard.metadata}
    return {**body, "metadata": metadata} if metadata else dict(body)


def _tests_itself(operations: list[Any]) -> bool:
    """Tell whether each operation changes something at or below a path whose value the first operations test."""
    steps = [(each.get("op"), each.get("path")) if isinstance(each, dict) else (None, None) for each in operations]
    changes = list(dropwhile(lambda step: step[0] == "test", steps))
    tested = [path for _, path in steps[: len(steps) - len(changes)]]
    return bool(changes) and all(
        op in _CHANGES and any(f"{path}/".startswith(f"{each}/") for each in tested) for op, path in changes
    )


def _tested(operations: list[Any], guard: Precondition) -> list[Any]:
    tests = [{"op": "test", "path": f"/metadata/{name}", "value": value} for name, value in guard.metadata.items()]
    return [*tests, *operations]
