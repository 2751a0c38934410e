"""Carries out one intent at the API server: sends it, reads the target if needed, and follows the rule for each answer.

It sends at most three writes for an intent, or for a part of a call's patch, and reads between them; for an Event, two.
Each is for one incarnation of the target, and none is what the loaded code does not declare. `requests.py` has what a
request and its reply look like, `answers.py` the rules, `judgedwrites.py` what follows for the intent. It stores
nothing: it touches no table, no log, and calls no user's function.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from levelog.handlers.viewhandlers import ReconcileHandler, WrittenClass, writes_of
from levelog_actuator.answers import Case, Judgement
from levelog_actuator.events import write_event
from levelog_actuator.judgedwrites import JudgedWrite, try_later
from levelog_actuator.observations import UNREADABLE, Observation
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import Order, Precondition, Reply, Request, ask, path_of, write_request
from levelog_actuator.results import Ended, Later, Result
from levelog_base.errors import ConfigurationError, IdentityMismatch
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, ObjectKey
from levelog_kube.client import KubeClient
from levelog_kube.discovery import cluster_uid
from levelog_kube.requestfailures import Withheld
from levelog_store.actuate.claims import ClaimedIntent

MOST_REMEMBERED: Final = 4_096
"""Objects whose versions are remembered."""
MOST_WRITES_SENT: Final = 3
"""Writes of one `send`: a status that others change all the time is tried again later."""


class Sender(Struct, eq=False):
    """Carries out claimed intents, one at a time for each caller."""

    client: KubeClient
    settings: ActuatorSettings
    redactor: Redactor = field(default_factory=Redactor)
    """Redacts what is recorded; the default has no key, and opens nothing that is encrypted."""
    is_dry: bool = False
    """All writes are server-side dry runs; Events have none, and are not to be carried out."""
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
        given back. An Event is sent without asking. No error text contains a secret value of the body. Raises
        msgspec.MsgspecError for a row that cannot be read.
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
            if why := _undeclared(function, order, parent):
                return _refused(intent, why)
        try:
            if order.verb == "event":
                result = await write_event(order, self.client, self.settings)
            else:
                judged = await self._write(order, may_send, limit or self.settings.request)
                result = judged.result(self.settings, self.redactor)
                self._remember(order.target, result)
        except Withheld:
            result = Later.unsent(intent, "the claim was about to end")
        except UNREADABLE as error:
            text = f"{order.title}: the answer cannot be read: {error}"
            result = try_later(self.settings, intent, text, is_doubtful=True)
        return replace(result, error=self.redactor.redact_text(result.error, order.secrets))

    async def _write(self, order: Order, may_send: Callable[[], bool], limit: timedelta) -> JudgedWrite:
        """Send a write, and read its target where that tells what to do next, until a rule ends the attempt."""
        guard = self._guard(order)
        refusal: Reply | None = None
        must_look = order.intent.is_doubtful or _was_not_seen(order)
        sent = 0
        while True:
            if must_look:
                case = await self._look(order, guard, refusal)
                judged = JudgedWrite.by_target(case)
                if judged.judgement is not Judgement.SEND:
                    return judged
                if sent == MOST_WRITES_SENT:
                    error = "changed by others each time that it was written"
                    return replace(judged, judgement=Judgement.RETRY, error=error)
                guard = case.next_guard
                if case.status == 404:  # the status is a field as any other
                    order, guard = replace(order, verb="patch"), Precondition(uid=guard.uid)
            request = write_request(order, guard, limit, is_dry=self.is_dry)
            reply, sent = await ask(self.client, request, limit, may_send), sent + 1
            judged = JudgedWrite.by_answer(order, reply)
            if judged.judgement is not Judgement.LOOK:
                return judged
            refusal, must_look = reply, True

    async def _look(self, order: Order, guard: Precondition, refusal: Reply | None) -> Case:
        seen, required = await self.look(order), Precondition() if refusal is None else guard
        if isinstance(seen, Reply):
            return Case(order=order, seen=None, read_failure=seen, refusal=refusal, required=required)
        return Case(order=order, seen=seen, refusal=refusal, required=required)

    def _guard(self, order: Order) -> Precondition:
        """The guard for the version that the decision saw; for a status, for the newest that this process has seen.

        Several views may write to one status: each but the first would be refused, and sent again.
        """
        guard, newest = order.first_guard, self.newest.get(order.target)
        if newest is None or order.verb != "patch_status" or order.options.if_unchanged:
            return guard
        return newest if newest.uid == guard.uid and newest.version > guard.version else guard

    def _remember(self, target: ObjectKey, result: Result) -> None:
        if not isinstance(result, Ended):
            return
        self.newest.pop(target, None)
        if result.uid and result.version:
            self.newest[target] = Precondition(uid=result.uid, version=result.version)
        if len(self.newest) > MOST_REMEMBERED:
            del self.newest[next(iter(self.newest))]

    async def read(self, target: ObjectKey, api_version: str) -> Reply:
        """Read an object."""
        request = Request(method="GET", path=path_of(target, api_version))
        return await ask(self.client, request, self.settings.request)

    async def look(self, order: Order) -> Observation | Reply | None:
        """The target as it is now; None if it is not there, a reply if it cannot be read."""
        reply = await self.read(order.target, order.intent.api_version)
        if reply.status == 404:
            return None
        try:
            return Observation.read(reply.body) if reply.status == 200 else reply
        except UNREADABLE as error:
            return Reply(status=0, message=str(error))


def _undeclared(function: ReconcileHandler | None, order: Order, parent: ObjectKey) -> str:
    """Why the function that is loaded yields no such write, whatever the tables say; empty: it may.

    Processors hold each intent against the same before: other code decided this one, or other hands wrote it.
    """
    if function is None:
        return "the code of this process has no reconcile function for its view"
    writes = function.writes or ()
    is_event = order.verb == "event"
    declared = _about(writes, order.body) if is_event else writes_of(writes, order.target.group_resource)
    if function.writes is not None and not any(order.verb in each.verbs for each in declared):
        return f"writes= of {function.name} does not name it in the code of this process"
    is_elsewhere = not is_event and parent.namespace not in ("", order.target.namespace)
    if is_elsewhere and not any(each.is_anywhere for each in declared):
        return f"it is not in the namespace of {parent}, where {function.name} writes alone"
    return ""


def _about(writes: Sequence[WrittenClass], event: Any) -> list[WrittenClass]:
    """What is declared of the kind that an Event is about, in any version of its group."""
    match event:
        case {"regarding": {"apiVersion": str(version), "kind": str(kind)}}:
            named = (version.rpartition("/")[0], kind)
            return [each for each in writes if (each.resource.group, each.resource.kind) == named]
        case _:
            return []


def _refused(intent: ClaimedIntent, why: str) -> Ended:
    """Nothing is sent; the level is decided again."""
    what = f"{intent.verb} {intent.target}: not sent: {why}"
    return Ended(intent=intent, outcome="conflict", uid=intent.target_uid, error=what)


def _was_not_seen(order: Order) -> bool:
    """The decision saw no target, or no version of it, where the write needs one."""
    intent = order.intent
    is_complete = intent.target_version > 0 if order.is_versioned else bool(intent.target_uid)
    return not order.makes_object and not is_complete
