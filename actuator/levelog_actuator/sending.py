"""Carries out one intent at the API server: sends it, reads the target if needed, and follows the rule for each answer.

It sends at most three writes for an intent, or for a part of a call's patch, and reads between them; for an Event, two.
Each is for one incarnation of the target, and none is what the loaded code does not declare. The rules are in
`answers.py`, what a request looks like in `requests.py`. It returns what came of the intent, and stores it nowhere: it
touches no table, no log, and calls no user's function.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, assert_never

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from levelog.handlers.viewhandlers import ReconcileHandler
from levelog_actuator.answers import Case, Judgement, Reply, rule_for_answer, rule_for_observation
from levelog_actuator.events import write_event
from levelog_actuator.limits import try_later
from levelog_actuator.observations import UNREADABLE, Observation
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import Order, Precondition, Request, path_of, write_request
from levelog_actuator.results import Ended, Later, Result
from levelog_actuator.rights import undeclared
from levelog_base.errors import ConfigurationError, IdentityMismatch
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, ObjectKey, parse_version
from levelog_base.wire.projection import Applied, applied
from levelog_base.wire.records import Outcome
from levelog_kube.client import KubeClient
from levelog_kube.discovery import cluster_uid
from levelog_kube.requestfailures import ApiError, NoAnswer, Unreachable, Withheld
from levelog_store.actuate.claims import ClaimedIntent

_OF_REFUSALS: Final = ("status", "reason", "message", "causes", "retry_after")
MOST_REMEMBERED: Final = 4_096
"""Objects whose versions are remembered."""
MOST_WRITES_SENT: Final = 3
"""Writes of one `send`: a status that others change all the time is tried again later."""


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] | None = None


class _Details(Struct):
    uid: str = ""


class _Answer(Struct):
    """An object, or the Status that answers a deletion which is complete."""

    metadata: _Metadata
    details: _Details | None = None
    kind: str = ""

    @property
    def is_removed(self) -> bool:
        """The write removed the last thing that the deletion waited for; the answer has the version from before."""
        about = self.metadata
        is_marked = about.deletion_timestamp is not None and self.kind != "Namespace"  # its spec has finalizers, too
        return is_marked and not (about.finalizers or about.deletion_grace_period_seconds)


_answers: Final = msgspec.json.Decoder(_Answer)


class Sender(Struct, eq=False):
    """Carries out claimed intents, one at a time for each caller."""

    client: KubeClient
    settings: ActuatorSettings
    redactor: Redactor = field(default_factory=Redactor)
    """Redacts what is recorded; the default has no key, and opens nothing that is encrypted."""
    is_dry: bool = False
    """All writes are server-side dry runs."""
    writers: Mapping[str, ReconcileHandler] | None = None
    """Loaded functions by view. Nothing is sent that they do not declare; None: whatever is asked for."""
    newest: dict[ObjectKey, Precondition] = {}
    """Uid and version of each target as the newest result had it, also that of a conflict."""

    async def verify(self, cluster: Cluster) -> None:
        """Raises IdentityMismatch if the API is that of another cluster; ApiError or Unavailable if it cannot tell."""
        found = await cluster_uid(self.client)
        if found != cluster:
            raise IdentityMismatch(
                f"the cluster at {self.client.server} is {found}, but the intents are for {cluster}: nothing is written"
            )

    async def carry_out(
        self, intent: ClaimedIntent, may_send: Callable[[], bool], limit: timedelta | None = None
    ) -> Result:
        """Send the intent, at once or after reading the target, and return the result.

        `may_send` tells whether the claim outlasts another write, whose deadline is `limit`; if not, the intent is
        given back. No error text contains a secret value of the body. Raises msgspec.MsgspecError for a row that cannot
        be read.
        """
        try:
            order = Order.read(intent, self.redactor)
        except ConfigurationError as error:  # the next round seals it anew
            return _refused(intent, str(error))
        return await self.send(order, may_send, limit)

    async def send(self, order: Order, may_send: Callable[[], bool], limit: timedelta | None = None) -> Result:
        """Send a decoded intent, as `carry_out` does."""
        intent = order.intent
        if self.writers is not None:
            function, parent = self.writers.get(intent.view), ObjectKey.parse(intent.parent)
            if why := undeclared(function, order, parent):
                return _refused(intent, why)
        try:
            if order.verb == "event":
                result = await write_event(order, self._ask, self.settings)
            else:
                result = await self._write(order, may_send, limit or self.settings.request)
                if isinstance(result, Ended):
                    self._remember(order.target, result)
        except UNREADABLE as error:
            text = f"{_title(order)}: the answer cannot be read: {error}"
            result = try_later(self.settings, intent, text, is_doubtful=True)
        return replace(result, error=self.redactor.redact_text(result.error, order.secrets))

    async def _write(self, order: Order, may_send: Callable[[], bool], limit: timedelta) -> Result:
        intent = order.intent
        guard = self._guard(order)
        refusal: Reply | None = None
        must_look = intent.is_doubtful or _was_not_seen(order)
        for _ in range(MOST_WRITES_SENT):
            if must_look:
                step = await self._look_and_judge(order, guard, refusal)
                if not isinstance(step, Precondition):
                    return _with_status(step, refusal)
                guard = step
                if refusal is not None and refusal.status == 404:  # the status is a field as any other
                    order, guard = replace(order, verb="patch"), Precondition(uid=step.uid)
            try:
                request = write_request(order, guard, limit, is_dry=self.is_dry)
                reply = await self._ask(request, may_send, limit)
            except Withheld:
                return Later.unsent(intent, "the claim was about to end")
            rule = rule_for_answer(order, reply)
            if rule.verdict is not Judgement.LOOK:
                return _with_status(self._conclude(order, rule.verdict, reply), reply)
            refusal, must_look = reply, True
        step = await self._look_and_judge(order, guard, refusal)
        if isinstance(step, Precondition):
            return try_later(self.settings, intent, "changed by others each time that it was written")
        return _with_status(step, refusal)

    def _guard(self, order: Order) -> Precondition:
        """The guard for the version that the decision saw; for a status, for the newest that this process has seen.

        Several views may write to one status: each but the first would be refused, and sent again.
        """
        guard, newest = order.first_guard, self.newest.get(order.target)
        if newest is None or order.verb != "patch_status" or order.options.if_unchanged:
            return guard
        return newest if newest.uid == guard.uid and newest.version > guard.version else guard

    def _remember(self, target: ObjectKey, ended: Ended) -> None:
        self.newest.pop(target, None)
        if ended.uid and ended.version:
            self.newest[target] = Precondition(uid=ended.uid, version=ended.version)
        if len(self.newest) > MOST_REMEMBERED:
            del self.newest[next(iter(self.newest))]

    async def _look_and_judge(self, order: Order, guard: Precondition, refusal: Reply | None) -> Result | Precondition:
        """The guard to send the intent with, or what became of it."""
        seen = await self.look(order)
        if isinstance(seen, Reply):
            return self._blind(order, seen)
        required = Precondition() if refusal is None else guard
        case = Case(order=order, seen=seen, refusal=refusal, required=required)
        rule = rule_for_observation(case)
        match rule.verdict:
            case Judgement.SEND:
                return _guard_for(case)
            case Judgement.WRITTEN | Judgement.UNCHANGED if seen is not None:
                is_same = rule.verdict is Judgement.UNCHANGED or not case.is_moved
                outcome: Outcome = "unchanged" if is_same else "written"
                made = self._applied(order, seen.body)
                return Ended(intent=order.intent, outcome=outcome, uid=seen.uid, version=seen.version, applied=made)
            case Judgement.RETRY:
                return try_later(self.settings, order.intent, _explain(case, rule.why))
            case Judgement.GONE:
                return _ended(order, "gone")
            case Judgement.CONFLICT:
                error = f"{_explain(case, rule.found)}: {rule.why}"
                if seen is None:
                    return Ended(intent=order.intent, outcome="conflict", error=error)
                uid, version, found = seen.uid, seen.version, seen.body
                return Ended(
                    intent=order.intent, outcome="conflict", uid=uid, version=version, error=error, found=found
                )
            case _:
                return _ended(order, "failed", _explain(case, rule.why))

    def _conclude(self, order: Order, verdict: Judgement, reply: Reply) -> Result:
        match verdict:
            case Judgement.WRITTEN:
                return self._written(order, reply)
            case Judgement.GONE:
                return _ended(order, "gone")
            case Judgement.FAILED:
                return _ended(order, "failed", _answer_text(order, reply))
            case Judgement.RETRY | Judgement.LOOK_LATER:
                is_doubtful = order.intent.is_doubtful or verdict is Judgement.LOOK_LATER
                text = _answer_text(order, reply)
                return try_later(self.settings, order.intent, text, is_doubtful=is_doubtful, reply=reply)
            case Judgement.UNCHANGED | Judgement.CONFLICT | Judgement.LOOK | Judgement.SEND:
                raise AssertionError(f"no rule for answers says {verdict}")
            case _:
                assert_never(verdict)

    def _written(self, order: Order, reply: Reply) -> Result:
        told = _answers.decode(reply.body)
        version = int(parse_version(told.metadata.resource_version or "0"))
        if told.is_removed and order.verb != "delete":
            version += 1  # the end of the object comes at a later one
        is_read = order.options.remembered or order.options.as_field
        answer = msgspec.json.decode(reply.body) if is_read else None
        made = self._applied(order, answer) if answer is not None else None
        uid = told.metadata.uid or (told.details.uid if told.details else "") or order.intent.target_uid
        is_same = version > 0 and version == order.intent.target_version
        outcome: Outcome = "unchanged" if is_same else "written"
        return Ended(intent=order.intent, outcome=outcome, uid=uid, version=version, applied=made, found=answer)

    def _blind(self, order: Order, reply: Reply) -> Result:
        text = f"{_title(order)}: the target cannot be read: {reply.message}"
        if reply.status in {0, 401, 408, 429} or reply.status >= 500:
            return try_later(self.settings, order.intent, text, reply=reply)
        return _ended(order, "failed", text)

    def _applied(self, order: Order, answer: Mapping[str, Any]) -> Applied | None:
        """The applied manifest, redacted as what it is compared with."""
        if order.verb != "apply" or not order.options.remembered:
            return None
        return applied(order.shown, self.redactor.redact_manifest(order.target.group_resource, dict(answer)))

    async def read(self, target: ObjectKey, api_version: str) -> Reply:
        """Read an object."""
        return await self._ask(Request(method="GET", path=path_of(target, api_version)))

    async def look(self, order: Order) -> Observation | Reply | None:
        """The target as it is now; None if it is not there, a reply if it cannot be read."""
        reply = await self.read(order.target, order.intent.api_version)
        if reply.status == 404:
            return None
        try:
            return Observation.read(reply.body) if reply.status == 200 else reply
        except UNREADABLE as error:
            return Reply(status=0, message=str(error))

    async def _ask(
        self, request: Request, may_send: Callable[[], bool] = lambda: True, limit: timedelta | None = None
    ) -> Reply:
        try:
            answer = await self.client.request(
                request.method,
                request.path,
                query=request.query,
                body=request.body,
                content_type=request.content_type,
                timeout=limit or self.settings.request,
                may_send=may_send,
            )
        except ApiError as error:
            return Reply(**{name: getattr(error, name) for name in _OF_REFUSALS})
        except (Unreachable, NoAnswer) as error:
            return Reply(status=0, is_sent=isinstance(error, NoAnswer), message=str(error))
        return Reply(status=answer.status, body=answer.body)


def _with_status(result: Result, reply: Reply | None) -> Result:
    """The result with the HTTP status of the last answer to the write."""
    return replace(result, answer=reply.counts_as) if isinstance(result, Ended) and reply is not None else result


def _refused(intent: ClaimedIntent, why: str) -> Ended:
    """Nothing is sent; the level is decided again."""
    what = f"{intent.verb} {intent.target}: not sent: {why}"
    return Ended(intent=intent, outcome="conflict", uid=intent.target_uid, error=what)


def _was_not_seen(order: Order) -> bool:
    """The decision saw no target, or no version of it, where the write needs one."""
    intent = order.intent
    is_complete = intent.target_version > 0 if order.is_versioned else bool(intent.target_uid)
    return not order.makes_object and not is_complete


def _guard_for(case: Case) -> Precondition:
    order, seen = case.order, case.seen
    if seen is None:
        return order.first_guard
    is_versioned = order.is_versioned or (case.is_doubtful and order.verb != "delete")
    return Precondition(uid=seen.uid, version=seen.version if is_versioned else 0)


def _ended(order: Order, outcome: Outcome, error: str = "") -> Ended:
    return Ended(intent=order.intent, outcome=outcome, uid=order.intent.target_uid, error=error)


def _title(order: Order) -> str:
    return f"{order.verb} {order.target}"


def _answer_text(order: Order, reply: Reply) -> str:
    owned = [f"{cause.field} ({cause.message})" for cause in reply.causes if cause.reason == "FieldManagerConflict"]
    if owned:
        return f"{_title(order)}: {', '.join(owned)}: owned by another field manager; force=True takes it over"
    status = f"{reply.status} {reply.reason}".strip() if reply.status else "no answer"
    return f"{_title(order)}: {status}: {reply.message}"


_MENDS: Final = {
    "apply": ", not by the parent: adopt=True takes over what nobody controls",
    "create": "",
    "delete": ", not by the parent: owned=False deletes it all the same",
}


def _explain(case: Case, why: str) -> str:
    step = _title(case.order)
    if case.is_foreign and case.seen is not None:
        holder = case.seen.controller_name or "nobody"
        return f"{step}: it exists and is controlled by {holder}{_MENDS[case.order.verb]}"
    if case.status == 404:
        return f"{step}: {why}"
    if case.refusal is not None:
        return _answer_text(case.order, case.refusal)
    return f"{step}: {why}"
