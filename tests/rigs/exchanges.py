"""What went through the fault proxy."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rigs.apirequests import ApiRequest, Point, Where, metadata_in
from rigs.faults import Action


class Answered(NamedTuple):
    """An answer of the server; `version` is the resourceVersion of the object in an answer to a write."""

    status: int
    version: str


@dataclass(kw_only=True)
class Exchange:
    """A request, what the server answered (nothing if it was not asked or did not), and the status given (or None)."""

    request: ApiRequest
    action: Action | None
    answers: list[Answered] = field(default_factory=list)
    given: int | None = None
    has_broken_off: bool = False
    """The server was asked, and ended the connection instead of an answer."""


class ExchangeLog:
    """All exchanges in the order of the requests' arrival; iterable, indexable, with a length."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []

    def __iter__(self) -> Iterator[Exchange]:
        return iter(tuple(self._exchanges))

    def __len__(self) -> int:
        return len(self._exchanges)

    def __getitem__(self, index: int) -> Exchange:
        return self._exchanges[index]

    def begin(self, request: ApiRequest, action: Action | None) -> Exchange:
        """Append one that has no answer yet."""
        exchange = Exchange(request=request, action=action)
        self._exchanges.append(exchange)
        return exchange

    def points(self, where: Where = lambda _: True) -> list[Point]:
        """Where a run like the one so far can be made to fail."""
        return [exchange.request.point for exchange in self if where(exchange.request)]

    def effective_writes(
        self, where: Where = lambda _: True, *, since: int = 0, others: Collection[str] = ()
    ) -> list[ApiRequest]:
        """Writes after which the object was another one; only requests whose number is above `since`.

        Told from the versions in the answers: one that was in no earlier answer to a write of that object, and is not
        among those that `others` have written. So the first write of an object counts even if it changed nothing, and
        one after somebody else's write does. Deletions count whenever they are answered below 300.
        """
        versions: dict[tuple[str, str, str], set[str]] = {}
        found: list[ApiRequest] = []
        for exchange in self:
            request = exchange.request
            if not request.is_write:
                continue
            known = versions.setdefault((request.resource, request.namespace, request.name), set(others))
            for answered in exchange.answers:
                if answered.status >= 300:
                    continue
                is_effective = request.verb.startswith("delete") or answered.version not in known
                if is_effective and request.number > since and where(request):
                    found.append(request)
                known.add(answered.version)
        return found


def answered(request: ApiRequest, status: int, body: bytes) -> Answered:
    """An answer as the log keeps it."""
    is_kept = request.is_write and status < 300
    return Answered(status, metadata_in(body).get("resourceVersion", "") if is_kept else "")
