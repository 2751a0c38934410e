"""What users do to Meters, chosen by chance: some changes call for writes of levelog's, others call for none."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rigs.clusterclient import Answer, ClusterClient
from rigs.deployment import Deployment
from rigs.exchanges import Exchange
from rigs.meters import VERBS, meter, numbers_of

TOUCHED: Final = 0.4
"""The part of disturbances that is followed at once by a change that calls for nothing."""
UNDONE: Final = 0.3
"""The part of disturbances that undo what levelog wrote, where that can be undone."""

_METERS: Final = "/apis/example.com/v1/namespaces/default/meters"
_MAPS: Final = "/api/v1/namespaces/default/configmaps"
_MADE: Final = {"apply": "patch", "create": "create"}
"""How a ConfigMap is made, by the verb of its Meter."""


class Script:
    """Disturbs each Meter anew once it shows what it wants, so that each disturbance calls for writes of its own.

    `calls` counts the effective writes that are called for so far, by verb and name of the object; `own` holds the
    versions that users wrote.
    """

    def __init__(self, client: ClusterClient, chance: random.Random, meters: int) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.changes = 0
        self.own: set[str] = set()
        self._chance = chance
        self._client = client
        self._verbs = {f"m{number}": VERBS[number % len(VERBS)] for number in range(meters)}
        self._wanted = dict.fromkeys(self._verbs, 1)

    @property
    def names(self) -> set[str]:
        """Of all objects that there were."""
        return {name for _, name in self.calls}

    async def begin(self) -> None:
        """Make the Meters."""

        async def make(name: str) -> None:
            self._note(await self._client.create(_METERS, meter(name, self._verbs[name], 1)))
            self._call(name)

        await asyncio.gather(*map(make, self._verbs))

    async def go_on(self) -> int:
        """Disturb each Meter that shows what it wants; returns how many there were."""
        shown = await self._shown()
        await asyncio.gather(*(self._disturb(name) for name in shown))
        return len(shown)

    async def is_shown(self) -> bool:
        """Whether each Meter shows what it wants."""
        return len(await self._shown()) == len(self._verbs)

    async def entries(self) -> dict[str, tuple[list[int], list[int]]]:
        """What was appended to each list, and what should have been."""
        found = await self._objects(_METERS)
        return {
            name: (found[name]["spec"]["entries"], list(range(1, self._wanted[name] + 1)))
            for name, verb in self._verbs.items()
            if verb == "append"
        }

    async def _shown(self) -> list[str]:
        meters, maps = await asyncio.gather(self._objects(_METERS), self._objects(_MAPS))
        return [name for name, wanted in self._wanted.items() if numbers_of(meters[name], maps) == [wanted]]

    async def _disturb(self, name: str) -> None:
        is_undone, is_touched = self._chance.random() < UNDONE, self._chance.random() < TOUCHED
        verb, path = self._verbs[name], f"{_METERS}/{name}"
        if is_undone and verb in _MADE:
            await self._client.delete(f"{_MAPS}/{name}-{self._wanted[name]}")
            self.changes += 1
        elif is_undone and verb == "status":
            self._note(await self._client.merge(f"{path}/status", {"status": {"shown": 0}}))
        elif is_undone and verb == "merge":
            self._note(await self._client.merge(path, {"spec": {"shown": 0}}))
        else:
            if verb in _MADE:
                self.calls["delete", f"{name}-{self._wanted[name]}"] += 1
            self._wanted[name] += 1
            self._note(await self._client.merge(path, {"spec": {"wanted": self._wanted[name]}}))
        self._call(name)
        if is_touched:
            note = {"metadata": {"annotations": {"touched": str(self.changes)}}}
            self._note(await self._client.merge(path, note))

    def _call(self, name: str) -> None:
        """What the Meter wants is to be written once more."""
        verb = self._verbs[name]
        self.calls[(_MADE[verb], f"{name}-{self._wanted[name]}") if verb in _MADE else ("patch", name)] += 1

    def _note(self, answer: Answer) -> None:
        assert answer.code in {200, 201}, answer
        self.own.add(answer.version)
        self.changes += 1

    async def _objects(self, path: str) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in (await self._client.get(path)).body["items"]}


def _writes(deployments: list[Deployment]) -> Iterator[Exchange]:
    """What was asked of the API server to write."""
    for deployment in deployments:
        yield from (exchange for exchange in deployment.api["actuate"].log if exchange.request.is_write)


def versions(deployments: list[Deployment]) -> list[tuple[str, str, str]]:
    """Verb, name and version in the answer of each write that succeeded."""
    return [
        (exchange.request.verb, exchange.request.name, answer.version)
        for exchange in _writes(deployments)
        for answer in exchange.answers
        if answer.status < 300
    ]


def written(deployments: list[Deployment], own: set[str]) -> Counter[tuple[str, str]]:
    """Effective writes of levelog's: versions that only they were answered with, and deletions."""
    answers = versions(deployments)
    changed = {(verb, name, version) for verb, name, version in answers if verb != "delete" and version not in own}
    deleted = Counter((verb, name) for verb, name, _ in answers if verb == "delete")
    return deleted + Counter((verb, name) for verb, name, _ in changed)


def doubtful(deployments: list[Deployment]) -> Counter[tuple[str, str]]:
    """Writes, by verb and name, that may have been made though the answer was an error of the server's, or none."""
    return Counter(
        (exchange.request.verb, exchange.request.name)
        for exchange in _writes(deployments)
        if exchange.has_broken_off or any(answer.status >= 500 for answer in exchange.answers)
    )


def story(deployments: list[Deployment], names: set[str]) -> str:
    """What was asked of the API server about these objects, and how it answered, one line each."""
    return "\n".join(
        f"{exchange.request.verb} {exchange.request.name}: {exchange.answers}"
        f"{', and broken off' * exchange.has_broken_off}, given {exchange.given}"
        for exchange in _writes(deployments)
        if exchange.request.name in names
    )
