"""Dry run: what the actuator would write, with the API's answers. Writes, claims and stores nothing."""

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import Order, Reply
from levelog_actuator.results import Ended, about
from levelog_actuator.sending import Sender
from levelog_base.errors import Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_kube.client import KubeClient
from levelog_log.notifications import Notifier, Topic
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

MOST_SHOWN: Final = 1000
"""Intents read at once; levels with unsent intents decide nothing, so there are seldom more."""
MOST_PATHS: Final = 10
_UNASKED: Final = ("call", "event")
_WORDS: Final = {"gone": "has nothing to write to", "conflict": "would be in conflict", "failed": "would be refused"}


class DryRun:
    """Asks the API for a server-side dry run of each due intent, and reports each result once.

    Limit: intents of one target do not see each other's effects, and levels stay `settling`, since nothing is written.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        client: KubeClient,
        notifier: Notifier,
        *,
        settings: ActuatorSettings,
        redactor: Redactor,
    ) -> None:
        self._database = database
        self._scope = scope
        self._listener = notifier.listen(Topic.INTENT)
        self._resync = settings.resync
        self._redactor = redactor
        self._sender = Sender(client, settings, redactor, is_dry=True)
        self.told: dict[str, str] = {}
        """What was told of each intent, by its key."""

    async def run(self) -> None:
        """Tell until cancelled. Raises IdentityMismatch if the cluster is another one than the intents are for."""
        await self._sender.verify(self._scope.cluster)
        log.warning("dry run: nothing is written")
        while True:
            try:
                async with self._database.reading() as connection:
                    found = await claims.read_open(connection, self._scope, MOST_SHOWN)
                self.told = {each.key: self.told[each.key] for each in found if each.key in self.told}
                for intent in found:
                    if intent.key not in self.told:
                        await self._tell(intent)
            except Unavailable as error:
                log.warning("nothing can be told now: %s", error)
            await self._listener.wait(min(self._resync, timedelta(seconds=10)))

    async def _tell(self, intent: ClaimedIntent) -> None:
        if intent.verb in _UNASKED:  # there is no dry run of them
            self.told[intent.key] = f"{intent.verb} {intent.target} would be carried out"
            log.info("dry run: %s", self.told[intent.key], extra=about(intent))
            return
        result = await self._sender.carry_out(intent, lambda: True)
        if not isinstance(result, Ended):
            log.warning("dry run: %s", result.error, extra=about(intent))
            return
        what = f"{intent.verb} {intent.target}"
        # The answer to a dry run bears the version that the target has: it does not tell whether that would change.
        is_accepted = result.outcome in ("written", "unchanged")
        text = f"{what} {await self._changes(intent) if is_accepted else _WORDS[result.outcome]}"
        if result.error:
            text = f"{text}: {result.error.removeprefix(f'{what}: ')}"
        self.told[intent.key] = text
        log.info("dry run: %s", text, extra={**about(intent), "outcome": result.outcome})

    async def _changes(self, intent: ClaimedIntent) -> str:
        """Where the target is other than the intent wants it; names of fields only, since values may be secret."""
        order = Order.read(intent, self._redactor)
        if order.verb == "delete" or not isinstance(order.shown, Mapping):
            return "would be written"
        seen = await self._sender.look(order)
        if seen is None:
            return "would be written: it is not there yet"
        if isinstance(seen, Reply):
            return "would be written; what it would change cannot be read"
        body = self._redactor.redact_manifest(order.target.group_resource, dict(seen.body))
        paths = sorted({".".join(path) for path in _differing(order.shown, body)} - {"apiVersion", "kind"})
        more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
        return f"would be written: {', '.join(paths[:MOST_PATHS])}{more}" if paths else "would change nothing"


def _differing(wanted: Any, actual: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(wanted, Mapping):
        for name, value in wanted.items():
            yield from _differing(value, actual.get(name) if isinstance(actual, Mapping) else None, (*path, str(name)))
    elif wanted != actual:
        yield path
