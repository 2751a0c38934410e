"""What an attempt to write comes to: judged by a rule, said in words, and made the result of the intent.

It asks the API nothing, and stores nothing: `sending.py` asks, `answers.py` has the rules.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog_actuator.answers import Case, Judgement, rule_for_answer, rule_for_observation
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import Order, Reply
from levelog_actuator.results import Ended, Later, Result
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import parse_version
from levelog_base.wire.projection import Applied, applied
from levelog_base.wire.records import Outcome
from levelog_store.actuate.claims import ClaimedIntent

_MENDS: Final = {
    "apply": ", not by the parent: adopt=True takes over what nobody controls",
    "create": "",
    "delete": ", not by the parent: owned=False deletes it all the same",
}


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


class JudgedWrite(Struct, frozen=True, kw_only=True):
    """An attempt to write that a rule has judged."""

    order: Order
    judgement: Judgement
    error: str
    """What is wrong, in words; what is said of a success is not shown."""
    reply: Reply | None
    """The last answer to the write; None: nothing was sent under this claim."""
    case: Case | None = None
    """The target, if it had to be read."""

    @classmethod
    def by_answer(cls, order: Order, reply: Reply) -> "JudgedWrite":
        """What an answer to a write comes to."""
        judgement = rule_for_answer(order, reply).verdict
        return cls(order=order, judgement=judgement, error=_words_of(order, reply), reply=reply)

    @classmethod
    def by_target(cls, case: Case) -> "JudgedWrite":
        """What a target that was read comes to."""
        rule = rule_for_observation(case)
        error = _explain(case, rule.why)
        if rule.verdict is Judgement.CONFLICT:
            error = f"{_explain(case, rule.found)}: {rule.why}"
        return cls(order=case.order, judgement=rule.verdict, error=error, reply=case.refusal, case=case)

    def result(self, settings: ActuatorSettings, redactor: Redactor) -> Result:
        """The result of the intent; `redactor` redacts what was applied."""
        intent, case = self.order.intent, self.case
        seen = None if case is None else case.seen
        answer = 0 if self.reply is None else self.reply.counts_as
        failed = Ended(intent=intent, outcome="failed", uid=intent.target_uid, error=self.error, answer=answer)
        match self.judgement:
            case Judgement.FAILED:
                return failed
            case Judgement.GONE:
                return replace(failed, outcome="gone", error="")
            case Judgement.RETRY | Judgement.LOOK_LATER as judgement:
                is_doubtful = intent.is_doubtful or judgement is Judgement.LOOK_LATER
                answered = self.reply if case is None else case.read_failure
                return try_later(settings, intent, self.error, is_doubtful=is_doubtful, reply=answered, answer=answer)
            case Judgement.WRITTEN if case is None and self.reply is not None:
                return self._as_answered(self.reply, redactor)
            case Judgement.CONFLICT if seen is not None:
                return replace(failed, outcome="conflict", uid=seen.uid, version=seen.version, found=seen.body)
            case (Judgement.WRITTEN | Judgement.UNCHANGED) as judgement if case is not None and seen is not None:
                is_same = judgement is Judgement.UNCHANGED or not case.is_moved
                outcome: Outcome = "unchanged" if is_same else "written"
                made, uid, version = self._applied(seen.body, redactor), seen.uid, seen.version
                return Ended(intent=intent, outcome=outcome, uid=uid, version=version, answer=answer, applied=made)
            case judgement:
                raise AssertionError(f"{judgement} ends no attempt")

    def _as_answered(self, reply: Reply, redactor: Redactor) -> Ended:
        order, intent = self.order, self.order.intent
        told = _answers.decode(reply.body)
        version = int(parse_version(told.metadata.resource_version or "0"))
        if told.is_removed and order.verb != "delete":
            version += 1  # the end of the object comes at a later one
        is_read = order.options.remembered or order.options.as_field
        found = msgspec.json.decode(reply.body) if is_read else None
        is_same = version > 0 and version == intent.target_version
        return Ended(
            intent=intent,
            outcome="unchanged" if is_same else "written",
            uid=told.metadata.uid or (told.details.uid if told.details else "") or intent.target_uid,
            version=version,
            answer=reply.counts_as,
            applied=None if found is None else self._applied(found, redactor),
            found=found,
        )

    def _applied(self, body: Mapping[str, Any], redactor: Redactor) -> Applied | None:
        """The applied manifest, redacted as what it is compared with."""
        order = self.order
        if order.verb != "apply" or not order.options.remembered:
            return None
        return applied(order.shown, redactor.redact_manifest(order.target.group_resource, dict(body)))


def try_later(
    settings: ActuatorSettings,
    intent: ClaimedIntent,
    error: str,
    *,
    is_doubtful: bool | None = None,
    reply: Reply | None = None,
    answer: int = 0,
) -> Result:
    """Put an intent off, or give it up after its last attempt; without a connection, no attempt is used up.

    `is_doubtful`: a request may have taken effect; None: as was known when it was claimed. `answer`: the HTTP status of
    the last answer to a write.
    """
    is_unreachable = reply is not None and not reply.status and not reply.is_sent
    if not is_unreachable and intent.attempts >= settings.attempts:
        error = f"given up after {intent.attempts} attempts: {error}"
        return Ended(intent=intent, outcome="failed", uid=intent.target_uid, error=error, answer=answer)
    wait = settings.delay(intent.attempts, retry_after=reply.retry_after if reply else None)
    return Later(
        intent=intent,
        delay=min(wait, settings.outage) if is_unreachable else wait,
        error=error,
        is_doubtful=intent.is_doubtful if is_doubtful is None else is_doubtful,
        is_counted=not is_unreachable,
        is_unreachable=is_unreachable,
        is_throttled=reply is not None and reply.status == 429,
    )


def _words_of(order: Order, reply: Reply) -> str:
    owned = [f"{cause.field} ({cause.message})" for cause in reply.causes if cause.reason == "FieldManagerConflict"]
    if owned:
        return f"{order.title}: {', '.join(owned)}: owned by another field manager; force=True takes it over"
    status = f"{reply.status} {reply.reason}".strip() if reply.status else "no answer"
    return f"{order.title}: {status}: {reply.message}"


def _explain(case: Case, why: str) -> str:
    title = case.order.title
    if case.read_failure is not None:
        return f"{title}: the target cannot be read: {case.read_failure.message}"
    if case.is_foreign and case.seen is not None:
        holder = case.seen.controller_name or "nobody"
        return f"{title}: it exists and is controlled by {holder}{_MENDS[case.order.verb]}"
    if case.status == 404 or case.refusal is None:
        return f"{title}: {why}"
    return _words_of(case.order, case.refusal)
