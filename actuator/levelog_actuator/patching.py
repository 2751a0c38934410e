"""Writes the patch and the Events that a call asks for, of its parent, before the call ends.

The row of the call first keeps what the function returned, so that no failed write calls it again. Fields that others
have written since are left alone. The requests go the way of all writes, through `send`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from levelog.absence import level_of
from levelog.edges import flat, unflat, value_at
from levelog.effects import CallPatch
from levelog.handlers.callnames import shown_write
from levelog.intents import IntentOptions, Verb, addressed_event
from levelog.resources import EVENTS
from levelog_actuator.outbox import Outbox
from levelog_actuator.requests import Order
from levelog_actuator.results import Ended, Later, Result, about
from levelog_actuator.sending import MOST_REMEMBERED
from levelog_base.errors import ConfigurationError, Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.projection import merge, unmerged
from levelog_base.wire.records import PatchNoted
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.daemonstates import keep_progress

log = logging.getLogger(__name__)

WRITTEN_FOR: Final = timedelta(hours=1)
"""How long a patch that the API refuses is tried again."""
MOST_READ: Final = 8
"""How often a patch is compared again under one claim, because others have changed the object."""


class Kept(Struct, frozen=True, kw_only=True):
    """What is kept of a call whose function has returned: the progress of its intent."""

    returned: Any
    at: datetime

    @classmethod
    def read(cls, intent: ClaimedIntent) -> "Kept | None":
        """None: the function has not returned."""
        try:
            return None if intent.progress is None else msgspec.json.decode(intent.progress, type=cls)
        except msgspec.ValidationError:  # the state of a daemon that runs
            return None


class _Made(Struct, frozen=True):
    """A range of versions in which only this process wrote the status, and the fields that it wrote."""

    since: int
    version: int
    fields: Mapping[str, Any]


class CallPatcher(Struct, eq=False):
    """Writes the patches of calls, one at a time for each object."""

    outbox: Outbox
    send: Callable[[Order], Awaitable[Result]]
    redactor: Redactor
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Locks by uid of the object."""
    made: dict[str, _Made] = {}
    """The newest own write of each object, by its uid."""

    async def finish(self, done: Ended, patch: CallPatch, kept: Kept | None) -> Result:
        """End a call that took place, once its patch is written, or was refused for too long.

        `kept` is what an earlier claim has kept, which may have written it too.
        """
        intent, call = done.intent, done.call
        assert call is not None  # noqa: S101 - it took place
        status = {key: value for key, value in patch.patch.items() if key == "status"}
        rest = {key: value for key, value in patch.patch.items() if key != "status"}
        # the status goes first, for the version that it was compared with: nobody's newer one is written over
        both: tuple[tuple[Verb, dict[str, Any]], ...] = ("patch_status", status), ("patch", rest)
        parts = [each for each in both if any(unmerged(patch.seen, each[1]))]
        if not parts and not patch.events:
            return done
        since = self.clock() if kept is None else kept.at
        if kept is None and not await self._keep(intent, canonical(Kept(returned=call.result, at=since))):
            return Later.unsent(intent, "its claim was lost")
        patches: list[PatchNoted] = []
        trouble: Result | None = None
        async with self.turns.setdefault(intent.parent_uid, asyncio.Lock()):
            for verb, body in parts:
                result = await self._write(intent, patch, verb, body, is_doubtful=kept is not None)
                if isinstance(result, Later) or (result is not None and result.outcome in ("failed", "conflict")):
                    trouble = result
                elif result is not None:
                    patches.append(PatchNoted(verb=verb, outcome=result.outcome, target_version=result.version))
        if trouble is not None:
            if self.clock() < since + WRITTEN_FOR:
                if isinstance(trouble, Later):
                    return replace(trouble, intent=intent, is_doubtful=True)
                delay = self.outbox.settings.delay(intent.attempts, most=self.outbox.settings.longest)
                return Later(intent=intent, delay=delay, error=trouble.error, is_doubtful=True)
            text = f"its patch was not written within {WRITTEN_FOR}: dropped: {trouble.error}"
            log.warning("%s: %s", _name(intent), text, extra=about(intent))
        await self._post(intent, patch)
        version = max((each.target_version for each in patches), default=0)
        return replace(done, uid=intent.parent_uid, version=version, patches=tuple(patches))

    async def _keep(self, intent: ClaimedIntent, progress: bytes) -> bool:
        """Keep what a call has returned, once the database is there; False: the claim has ended."""
        while True:
            try:
                return await self.outbox.write(keep_progress, self.outbox.owner, intent, progress)
            except Unavailable as error:
                log.log(level_of(error), "what a call has returned is not kept: %s", error, extra=about(intent))
                await self.outbox.database.absence.pause(self.outbox.settings.outage.total_seconds())

    async def _write(
        self, call: ClaimedIntent, patch: CallPatch, verb: Verb, wanted: dict[str, Any], *, is_doubtful: bool
    ) -> Result | None:
        """Send one part of a patch, without fields that others have written since the decision; None: none is left."""
        uid, found, made = call.parent_uid, patch.seen, self.made.get(call.parent_uid)
        version = int(found["metadata"].get("resourceVersion") or 0) if found else 0
        if made is not None and made.since <= version <= made.version:
            version = made.version
        is_status, is_certain = verb == "patch_status", not is_doubtful
        result: Result | None = None
        for _ in range(MOST_READ):
            body, is_first = wanted, found is patch.seen
            options = IntentOptions(as_field=True, if_unchanged=is_status or (is_first and version > 0))
            if not is_first and (is_status or is_doubtful):
                body = self._not_overtaken(call, patch, wanted, found or {}, made)
            if not body:
                return None
            place, api_version = ObjectKey.parse(call.parent), patch.of.resource_type.api_version
            result = await self._send(call, verb, place, api_version, body, options, version, is_certain=is_certain)
            if not isinstance(result, Ended) or result.outcome != "conflict" or result.found is None:
                break
            found, version, is_certain = result.found, result.version, True
        else:
            return result
        if isinstance(result, Ended) and result.outcome in ("written", "unchanged"):
            self.made.pop(uid, None)
            is_next, is_guarded = made is not None and made.version == version, options.if_unchanged and not is_doubtful
            since = (made.since if made and is_next else version) if is_guarded else result.version
            self.made[uid] = _Made(since, result.version, merge(made.fields if made else {}, body))
            if len(self.made) > MOST_REMEMBERED:
                del self.made[next(iter(self.made))]
            self._note(call, patch, verb, body, result)
        return result

    def _not_overtaken(
        self,
        call: ClaimedIntent,
        patch: CallPatch,
        wanted: dict[str, Any],
        found: Mapping[str, Any],
        made: _Made | None,
    ) -> dict[str, Any]:
        """The wanted fields, without those that somebody else has changed since the call saw them."""
        if patch.seen is None:
            return wanted
        shown = self.redactor.redact_manifest(patch.of.resource_type.group_resource, dict(found))
        seen, ours, fields = patch.seen, made.fields if made else {}, flat(wanted)
        overtaken = [
            path
            for path, value in fields.items()
            if value != {}
            and _at(found, path) not in (value, value_at(ours, path))
            and _at(shown, path) != _at(seen, path)
        ]
        if not overtaken:
            return wanted
        text = "%s: %s is left as somebody else has written it since the call was decided on"
        log.warning(text, _name(call), ", ".join(overtaken), extra=about(call))
        return unflat({path: value for path, value in fields.items() if path not in overtaken})

    def _note(self, call: ClaimedIntent, patch: CallPatch, verb: Verb, body: Mapping[str, Any], result: Ended) -> None:
        told = {**about(call), "outcome": result.outcome, "version": result.version}
        log.info("%s: %s", shown_write(call.view, verb, call.parent), result.outcome, extra=told)
        if missing := sorted(unmerged(result.found or body, body)):
            log.warning(
                "the API accepted what %s wrote, and the object does not show %s: the definition of %s drops what it "
                "does not name; name it there, or declare x-kubernetes-preserve-unknown-fields: true",
                *(_name(call), ", ".join(missing), patch.of.resource_type.group_resource),
            )

    async def _post(self, call: ClaimedIntent, patch: CallPatch) -> None:
        """Post the Events of a call, each once: nothing waits for them."""
        parent, operator = ObjectKey.parse(call.parent), call.view.partition("/")[0]
        named = {"name": parent.name, "namespace": parent.namespace, "uid": call.parent_uid}
        for number, each in enumerate(patch.events):
            target, content = addressed_event(each, patch.of.resource_type, named, operator)
            options, body = IntentOptions(name=digest(call.key, str(number))), msgspec.json.decode(content)
            result = await self._send(call, "event", target, EVENTS.api_version, body, options, 0)
            if isinstance(result, Later) or result.outcome == "failed":
                log.warning("%s", result.error, extra=about(call))

    async def _send(
        self,
        call: ClaimedIntent,
        verb: Verb,
        target: ObjectKey,
        api_version: str,
        body: Any,
        options: IntentOptions,
        version: int,
        *,
        is_certain: bool = True,
    ) -> Result:
        """Send a write, under the key of the call that it is part of."""
        shown = self.redactor.redact_content(target, body)
        intent = replace(
            call,
            verb=verb,
            target=str(target),
            api_version=api_version,
            target_uid=call.parent_uid,
            target_version=version,
            is_doubtful=not is_certain,
        )
        try:
            self.redactor.refuse_hashes(f"{verb} of {target}", canonical(body))
        except ConfigurationError as error:
            return Ended(intent=intent, outcome="failed", error=str(error))
        content = {"body": body, "shown": shown.content, "secrets": shown.secrets}
        return await self.send(Order(intent=intent, verb=verb, target=target, options=options, **content))


def _name(intent: ClaimedIntent) -> str:
    return intent.view.partition("/")[2]


def _at(content: Mapping[str, Any], path: str) -> Any:
    found = value_at(content, path)
    return None if found is UNSET else found
