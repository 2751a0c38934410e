"""Who may act on each run of a daemon, said in a second way; what was accepted of daemons, and what that has to be."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from levelog_actuator.results import Ended
from rigs.machine.checks import Broken
from rigs.machine.daemons.followers import LABELS, fits

INVARIANT: Final = 18
Place = tuple[str, str]
"""Daemon and uid."""


class Tenure:
    """One claim of one run."""

    def __init__(self, owner: str, key: str, place: Place, name: str) -> None:
        self.owner = owner
        self.key = key
        self.place = place
        self.name = name
        self.is_current = True
        """The claim lasts."""
        self.is_called = False
        """The function runs."""

    def __str__(self) -> str:
        return f"{self.place[0]} of {self.place[1]} ({self.key}) on {self.owner}"


class Tenures:
    """All claims, and what came of them."""

    def __init__(self, is_there: Callable[[str, str], bool]) -> None:
        """`is_there` tells whether an object of a name and uid is."""
        self._is_there = is_there
        self._last: dict[str, Tenure] = {}
        """By key, as long as nobody has taken the claim away."""
        self._all: list[Tenure] = []
        self._kept: dict[Place, int | None] = {}
        self.finished: set[Place] = set()
        """Where a daemon has returned, which was stored."""
        self.keeps = 0
        """How often one was asked to keep its state."""

    def claim(self, owner: str, key: str, place: Place, name: str) -> Tenure:
        """A run is claimed, by whoever may."""
        before = self._last.get(key)
        if before is not None and before.is_current:
            raise Broken(INVARIANT, f"{owner} claims what is claimed: {before}")
        tenure = self._last[key] = Tenure(owner, key, place, name)
        self._all.append(tenure)
        return tenure

    def lapse(self, owner: str) -> None:
        """The time of all claims of an owner is over; they are its own until another one takes them."""
        for each in self._last.values():
            if each.owner == owner:
                each.is_current = False

    def end(self, owner: str) -> None:
        """All claims of an owner are ended by others."""
        self.lapse(owner)
        self._last = {key: each for key, each in self._last.items() if each.owner != owner}

    def renew(self, owner: str, keys: Collection[str]) -> None:
        """Claims of runs that are under way last on, as far as the owner still has them."""
        for key in keys:
            if (each := self._last.get(key)) is not None and each.owner == owner:
                each.is_current = True

    def next_serial(self) -> int:
        """What is kept next."""
        self.keeps += 1
        return self.keeps

    def take_back(self, key: str) -> None:
        """The claim of a run is given back by its owner."""
        self._last.pop(key).is_current = False

    def is_last(self, tenure: Tenure) -> bool:
        """Tell whether nobody has taken the claim away."""
        return self._last.get(tenure.key) is tenure

    def begin(self, tenure: Tenure, state: int | None) -> None:
        """The function is called. Raises Broken."""
        tenure.is_called = True
        if not (self.is_last(tenure) and tenure.is_current):
            return
        if tenure.place in self.finished:
            raise Broken(INVARIANT, f"{tenure} is called, and has returned before")
        if state != self._kept.get(tenure.place):
            raise Broken(INVARIANT, f"{tenure} begins with {state}; {self._kept.get(tenure.place)} was kept last")
        for other in self._all:
            is_other = other is not tenure and other.is_called and other.is_current
            if is_other and (other.place[0], other.name) == (tenure.place[0], tenure.name):
                raise Broken(INVARIANT, f"{tenure} is called beside {other}")

    def judge(self, tenure: Tenure, serial: int, *, is_kept: bool) -> None:
        """A daemon kept its state, or was refused to. Raises Broken."""
        may_keep = self.is_last(tenure) and tenure.is_current
        if is_kept:
            if not may_keep:
                raise Broken(INVARIANT, f"{tenure} keeps {serial}, and has lost its claim")
            self._kept[tenure.place] = serial
        elif may_keep:
            raise Broken(INVARIANT, f"{tenure} has its claim, and {serial} is refused")

    def finish(self, tenure: Tenure, result: Ended) -> None:
        """A receipt was stored. Raises Broken."""
        if not self.is_last(tenure):
            raise Broken(INVARIANT, f"{tenure} has lost its claim, and ends the run: {result.outcome}")
        assert result.call is not None, result.error
        told = result.call.result
        state = (told.get("state") or {}).get("serial")
        # the runs of an object that is gone are forgotten, with their state, maybe before the last one has begun
        is_forgotten = state is None and not self._is_there(tenure.name, tenure.place[1])
        if state != self._kept.get(tenure.place) and not is_forgotten:
            raise Broken(INVARIANT, f"{tenure} ends with {state}; {self._kept.get(tenure.place)} was kept last")
        if told["is_finished"]:
            self.finished.add(tenure.place)
        self.take_back(tenure.key)

    def check_rest(self, bodies: Iterable[Any]) -> None:
        """Compare what runs with what has to. Raises Broken."""
        wanted = {
            (handler, body["metadata"]["uid"])
            for body in bodies
            for handler in LABELS
            if fits(handler, body) and (handler, body["metadata"]["uid"]) not in self.finished
        }
        running = [each for each in self._all if each.is_called]
        for each in running:
            if not (self.is_last(each) and each.is_current):
                raise Broken(INVARIANT, f"at rest {each} runs, and has no claim")
        places = [each.place for each in running]
        if sorted(places) != sorted(wanted):
            raise Broken(INVARIANT, f"at rest there run {sorted(places)}, not {sorted(wanted)}")
