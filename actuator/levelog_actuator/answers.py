"""The rule for each answer of the API: how it ends the intent, or what to do next.

Two tables; the first rule that fits applies. `ANSWER_RULES` is for the API's answer to a write, `SIGHT_RULES` for the
state of a target that was read before a write or after one of unclear effect. docs/writes.md shows both.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Generic, ParamSpec

from msgspec import Struct

from levelog_actuator.observations import Observation, holds
from levelog_actuator.requests import ABSENT, Order, Precondition, Reply
from levelog_base.wire.objects import ObjectKey

P = ParamSpec("P")


class Judgement(StrEnum):
    """What to do next."""

    WRITTEN = "written"
    """The target is as the intent wants it; `unchanged` if that is the version that the decision saw."""
    UNCHANGED = "unchanged"
    """Nothing had to be written."""
    GONE = "gone"
    """The target, or the incarnation that was meant, does not exist."""
    CONFLICT = "conflict"
    """Refused, or not known; the next round decides on the target as it is then."""
    FAILED = "failed"
    """Refused; a retry cannot succeed."""
    RETRY = "retry"
    """Nothing took effect; send it again later."""
    LOOK_LATER = "look later"
    """It may have taken effect; later, read the target before anything is sent again."""
    LOOK = "look"
    """Read the target now."""
    SEND = "send"
    """Send it, for this incarnation and version only."""


class Case(Struct, frozen=True, kw_only=True):
    """An intent whose target was read."""

    order: Order
    seen: Observation | None
    """None: it is not there, or not known."""
    read_failure: Reply | None = None
    """The answer to reading it that shows no object; None: it is known."""
    refusal: Reply | None = None
    """The answer that led to reading it; None: nothing was sent yet this time."""
    required: Precondition = Precondition()
    """What the target had to be when the write was refused."""

    @property
    def is_doubtful(self) -> bool:
        """A request for this intent may have taken effect."""
        return self.order.intent.is_doubtful

    @property
    def is_other(self) -> bool:
        """It is another incarnation than the decision saw, or than was found before the request."""
        uid = self.order.intent.target_uid or self.required.uid
        return bool(uid) and self.seen is not None and self.seen.uid != uid

    @property
    def is_moved(self) -> bool:
        """It is at another version than the decision saw, or the decision saw none."""
        return self.seen is None or self.seen.version != self.order.intent.target_version

    @property
    def is_outdated(self) -> bool:
        """It is at another version than was required when the write was refused."""
        return self.required.version > 0 and self.seen is not None and self.seen.version != self.required.version

    @property
    def is_foreign(self) -> bool:
        """It is not the parent's to make or to delete; an apply that names no owner shares any object."""
        order, seen = self.order, self.seen
        is_seen = bool(order.intent.target_uid)  # by the decision, which has looked whose it is
        if seen is None or is_seen or order.verb not in ("apply", "create", "delete"):
            return False
        if order.options.adopt and not seen.controller:
            return False
        if not order.controller:
            return order.verb == "create" and bool(seen.controller)
        return seen.controller != order.controller or (order.verb == "delete" and not order.is_in_reach)

    @property
    def is_taken(self) -> bool:
        """It was there already when an apply was to make it."""
        return self.status == 409 and self.required.version == ABSENT

    @property
    def holds(self) -> bool:
        """It is as the intent wants it."""
        return self.seen is not None and holds(self.order, self.seen)

    @property
    def next_guard(self) -> Precondition:
        """The guard for what was found, if the write is sent."""
        order, seen = self.order, self.seen
        if seen is None:
            return order.first_guard
        is_versioned = order.is_versioned or (self.is_doubtful and order.verb != "delete")
        return Precondition(uid=seen.uid, version=seen.version if is_versioned else 0)

    @property
    def status(self) -> int:
        """HTTP status of the refusal; 0: there was none."""
        return 0 if self.refusal is None else self.refusal.status


def _is(*statuses: int) -> Callable[[Order, Reply], bool]:
    return lambda _, reply: reply.status in statuses


class Rule(Struct, Generic[P], frozen=True):
    """One row: the answers or the states of the target that it matches, and what to do."""

    found: str
    applies: Callable[P, bool]
    verdict: Judgement
    why: str


def names_object(key: ObjectKey, reply: Reply) -> bool:
    """Tell whether the API says that just this object does not exist."""
    # The text of NewNotFound in k8s.io/apimachinery/pkg/api/errors; a missing namespace or resource reads differently.
    return reply.reason == "NotFound" and reply.message.startswith(f'{key.group_resource} "{key.name}" not found')


ANSWER_RULES: Final[tuple[Rule[[Order, Reply]], ...]] = (
    Rule("2xx", lambda _, reply: 200 <= reply.status < 300, Judgement.WRITTEN, "done"),
    Rule(
        "404 that names the target, to a patch of a status",
        lambda order, reply: reply.status == 404 and order.verb == "patch_status" and names_object(order.target, reply),
        Judgement.LOOK,
        "so the API answers too if the resource has no subresource for its status",
    ),
    Rule(
        "404 that names the target",
        lambda order, reply: reply.status == 404 and not order.makes_object and names_object(order.target, reply),
        Judgement.GONE,
        "there is nothing to write to; a delete is done",
    ),
    Rule(
        "404 otherwise", _is(404), Judgement.RETRY, "the resource, its subresource or the namespace is not there (yet)"
    ),
    Rule(
        "409 conflict of field managers",
        lambda _, reply: reply.status == 409 and any(cause.reason == "FieldManagerConflict" for cause in reply.causes),
        Judgement.FAILED,
        "another manager owns the field; `force=True` would take it over",
    ),
    Rule(
        "409 otherwise",
        _is(409),
        Judgement.LOOK,
        "uid, version or existence is not as expected: the target shows which",
    ),
    Rule(
        "422",
        lambda order, reply: reply.status == 422 and order.verb != "create",
        Judgement.LOOK,
        "invalid, denied by an admission policy, or a patch of another incarnation, whose uid cannot be changed",
    ),
    Rule("401", _is(401), Judgement.RETRY, "credentials are being renewed"),
    Rule("429", _is(429), Judgement.RETRY, "the server is overloaded; after Retry-After"),
    Rule(
        "500 about what was sent",
        lambda _, reply: reply.is_unfit,
        Judgement.FAILED,
        "how kube-apiserver refuses an unknown field, a wrong type, a malformed quantity, time or base64, a schema "
        "that the stored object does not fit, and what is too large for etcd; counts as 422",
    ),
    Rule(
        "408, 5xx",
        lambda _, reply: reply.status == 408 or reply.status >= 500,
        Judgement.LOOK_LATER,
        "the write may have taken effect",
    ),
    Rule(
        "no connection",
        lambda _, reply: not reply.status and not reply.is_sent,
        Judgement.RETRY,
        "nothing was sent; all intents wait for the server, none of them uses up an attempt",
    ),
    Rule(
        "no answer (time-out, connection lost)",
        lambda _, reply: not reply.status,
        Judgement.LOOK_LATER,
        "the write may have taken effect",
    ),
    Rule(
        "403",
        _is(403),
        Judgement.FAILED,
        "forbidden: by a role, a quota or a webhook, or the namespace is being deleted",
    ),
    Rule("410", _is(410), Judgement.FAILED, "the API does not serve this any more"),
    Rule(
        "any other (400, 405, 413, 415, …)",
        lambda *_: True,
        Judgement.FAILED,
        "refused: malformed, too large, denied by a webhook",
    ),
)

SIGHT_RULES: Final[tuple[Rule[[Case]], ...]] = (
    Rule(
        "no answer, 401, 408, 429, 5xx",
        lambda case: case.read_failure is not None and case.read_failure.is_passing,
        Judgement.RETRY,
        "the target cannot be read now; it is as doubtful as before whether the write took effect",
    ),
    Rule(
        "any other answer without an object",
        lambda case: case.read_failure is not None,
        Judgement.FAILED,
        "the target cannot be read: forbidden, say",
    ),
    Rule(
        "nothing, and the intent makes the object",
        lambda case: case.seen is None and case.order.makes_object and case.refusal is None,
        Judgement.SEND,
        "it was not made, or not seen to be",
    ),
    Rule(
        "after 409: nothing, and the intent makes the object",
        lambda case: case.seen is None and case.order.makes_object and case.status == 409,
        Judgement.RETRY,
        "it vanished meanwhile",
    ),
    Rule(
        "after 422: nothing, and the intent makes the object",
        lambda case: case.seen is None and case.order.makes_object,
        Judgement.FAILED,
        "invalid, as the message says",
    ),
    Rule("nothing", lambda case: case.seen is None, Judgement.GONE, "what the decision saw does not exist any more"),
    Rule(
        "another uid than the decision saw",
        lambda case: case.is_other,
        Judgement.GONE,
        "another incarnation is left alone",
    ),
    Rule(
        "after 404, patch of a status, from an adapter: the incarnation that was meant",
        lambda case: case.status == 404 and case.order.options.as_field,
        Judgement.SEND,
        "no status subresource: it is sent as a patch of the object",
    ),
    Rule(
        "after 404, patch of a status: the incarnation that was meant",
        lambda case: case.status == 404,
        Judgement.FAILED,
        "no status subresource: declare `subresources: {status: {}}` in the CRD",
    ),
    Rule(
        "an object that the intent makes or deletes, and that the parent does not control",
        lambda case: case.is_foreign,
        Judgement.FAILED,
        "it is somebody else's",
    ),
    Rule(
        "create: an object with the same owner",
        lambda case: case.order.verb == "create" and not case.is_doubtful,
        Judgement.UNCHANGED,
        "it exists, and is left alone afterwards",
    ),
    Rule(
        "delete: an object that is being deleted",
        lambda case: case.order.verb == "delete" and case.holds and bool(case.order.intent.target_uid),
        Judgement.WRITTEN,
        "the deletion was accepted",
    ),
    Rule(
        "in doubt: an object that holds the fields",
        lambda case: case.is_doubtful and case.holds and case.order.verb != "delete",
        Judgement.WRITTEN,
        "the write took effect, or is not needed",
    ),
    Rule(
        "in doubt, delete: the incarnation that the decision saw",
        lambda case: (
            case.is_doubtful
            and case.order.verb == "delete"
            and bool(case.order.intent.target_uid)
            and case.refusal is None
            and not case.order.options.if_unchanged
        ),
        Judgement.SEND,
        "it was not deleted; deleting it twice is deleting it once",
    ),
    Rule(
        "in doubt: an object at another version than the decision saw",
        lambda case: case.is_doubtful and case.is_moved,
        Judgement.CONFLICT,
        "the write may be in it, under somebody's later change: it must not be made twice",
    ),
    Rule(
        "in doubt: the version that the decision saw",
        lambda case: case.is_doubtful and case.refusal is None,
        Judgement.SEND,
        "nothing took effect; that version is required, in case the first request is still on its way",
    ),
    Rule(
        "looked at before the first request, as the decision did not see it",
        lambda case: case.refusal is None,
        Judgement.SEND,
        "for what was found and nothing else",
    ),
    Rule(
        "after 409, apply that was to make it: an object of the parent's",
        lambda case: case.is_taken,
        Judgement.SEND,
        "for this incarnation; with `adopt=True`, also if nobody controls it",
    ),
    Rule(
        "after 409 or 422, patch of a status: another version than was required",
        lambda case: case.is_outdated and case.order.verb == "patch_status" and not case.order.options.if_unchanged,
        Judgement.SEND,
        "something else of it changed; the version stands for the incarnation here",
    ),
    Rule(
        "after 409 or 422, JSON patch or `if_unchanged`: another version than was required",
        lambda case: case.is_outdated,
        Judgement.CONFLICT,
        "the next round decides on the target as it is now",
    ),
    Rule(
        "after 422, JSON patch that tests what it changes: another version than the decision saw",
        lambda case: case.status == 422 and case.order.is_tested and case.is_moved,
        Judgement.CONFLICT,
        "the next round decides on the target as it is now",
    ),
    Rule(
        "after 409: the same incarnation",
        lambda case: case.status == 409,
        Judgement.RETRY,
        "it changed while the server was writing",
    ),
    Rule("after 422: the same incarnation", lambda _: True, Judgement.FAILED, "invalid, as the message says"),
)


def rule_for_answer(order: Order, reply: Reply) -> Rule[[Order, Reply]]:
    """The rule that holds for an answer to a write."""
    return next(rule for rule in ANSWER_RULES if rule.applies(order, reply))


def rule_for_observation(case: Case) -> Rule[[Case]]:
    """The rule that holds once the target was read."""
    return next(rule for rule in SIGHT_RULES if rule.applies(case))
