"""The rules of the edges' machine: what users, watches, processors, actuators and handlers may do, in any order."""

from typing import Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from levelog_base.wire.records import ReceiptNoted
from rigs.machine.cluster import WEBS
from rigs.machine.edges.attempts import OUTCOMES
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.machine import JUMPS, WEB_NAMES, Edit, set_label, set_spec, touch
from rigs.machine.steps import SteppedMachine, step

CREATED: Final = "2025-12-31T00:00:00Z"


CHANGES: Final[dict[str, Edit]] = {
    **{f"size={size}": set_spec(size=size) for size in (1, 2)},
    **{f"config={name}": set_spec(config=name) for name in ("c0", "c1")},
    **{f"app={app}": set_label("app", app) for app in ("web", "other")},
    "noise": touch,
}

_names = st.sampled_from(WEB_NAMES)
_workers = st.sampled_from("AB")
_few = st.sampled_from((1000, 1, 2, 3))
_outcomes = st.sampled_from(("returns", "returns", "returns", *OUTCOMES))
W = TypeVar("W", bound=EdgeWorld)
_then = st.sampled_from(("call", "call", "process", "fold", "watch"))
"""What follows a change at once, so that short examples reach far: watched, folded, decided on, begun to be called."""


class WebsMachine(SteppedMachine[W]):
    """Changes Webs, and comes to rest at the end."""

    def rest(self) -> None:
        """Everything comes to rest."""
        self._run(self.world.rest())

    def teardown(self) -> None:
        """Everything comes to rest at the end, too."""
        if self.broken is None:
            self.rest()

    def _create(self, name: str) -> None:
        metadata = {"labels": {"app": "web"}, "creationTimestamp": CREATED}
        self.world.cluster.create(WEBS, name, {"spec": {"config": "c0", "size": 1}, "metadata": metadata})

    def _change(self, name: str, change: str) -> None:
        cluster = self.world.cluster
        if change in ("delete", "anew"):
            if cluster.uid(WEBS, name):
                cluster.delete(WEBS, name)
            if change == "anew":
                self._create(name)
            return
        if not cluster.uid(WEBS, name):
            self._create(name)
        cluster.change(WEBS, name, CHANGES[change])

    def _begin(self, webs: tuple[str, ...], then: str, *, is_shared: bool) -> None:
        for name in webs:
            self._create(name)
        self.world.ingest.list(WEBS)
        for name in "ABAB" if is_shared else "A":
            self._run(self.world.tend(name))
        self._run(self._followed(then))

    def _change_and(self, then: str, name: str, *changes: str) -> None:
        for change in changes:
            self._change(name, change)
        self.world.ingest.watch(WEBS)
        self._run(self._followed(then))

    async def _followed(self, then: str) -> None:
        """Let processors `fold`, or `process`, or have carried out what they decided, too; `watch`: nothing follows."""
        if then == "watch":
            return
        for name in self.world.workers:
            await self.world.fold(name)
        if then == "fold":
            return
        for name in self.world.workers:
            await self.world.decide(name)
        if then != "process":
            await self._carry_out()

    async def _carry_out(self) -> None:
        raise NotImplementedError


class EdgesMachine(WebsMachine[EdgeWorld]):
    """All that may happen to handlers of one application; what is at rest is compared with what should be."""

    @step(initialize, webs=st.sampled_from((WEB_NAMES, WEB_NAMES[:1], ())), is_shared=st.booleans(), then=_then)
    def begin(self, webs: tuple[str, ...], is_shared: bool, then: str) -> None:
        """Some objects are there, and one or two processors begin."""
        self._begin(webs, then, is_shared=is_shared)

    @step(rule, name=_names, change=st.sampled_from(("delete", "anew", *CHANGES)), then=_then)
    def change(self, name: str, change: str, then: str) -> None:
        """A user changes a Web; one that is not there is made."""
        self._change_and(then, name, change)

    @step(rule, name=_names, changes=st.lists(st.sampled_from(("delete", *CHANGES)), max_size=3), outcome=_outcomes)
    def change_meanwhile(self, name: str, changes: list[str], outcome: str) -> None:
        """A Web changes, and changes while its handlers are called for that; what is called next begins beside them."""
        self._change_and("call", name, "size=2", "size=1" if self.world.now.minute % 2 else "config=c1")
        self._change_and("call", name, *changes)
        self._run(self.world.caller.finish(0, outcome))
        self._run(self._followed("call"))

    @step(rule, number=st.integers(0, 3), outcome=_outcomes, end=st.sampled_from(("process", "relay", "", "killed")))
    def finish(self, number: int, outcome: str, end: str) -> None:
        """A handler returns or raises; its receipt is in the log at once, later, or the actuator is killed before."""
        self._run(self._finish(number, outcome, end))

    async def _finish(self, number: int, outcome: str, end: str) -> None:
        await self.world.caller.finish(number, outcome, is_killed=end == "killed")
        if end in ("relay", "process"):
            await self.world.caller.relay()
        if end == "process":
            await self._followed("call")

    @step(rule, most=_few)
    def claim(self, most: int) -> None:
        """An actuator claims what is due, and calls it."""
        self._run(self.world.caller.claim(most))

    @step(rule, what=st.sampled_from(("relay", "crash", "stand still")))
    def act(self, what: str) -> None:
        """An actuator hands over receipts; or is killed in the middle of calls; or stands still until others go on."""
        caller = self.world.caller
        self._run({"relay": caller.relay, "crash": caller.crash, "stand still": caller.stand_still}[what]())

    @step(rule, worker=_workers, most=_few)
    def fold(self, worker: str, most: int) -> None:
        """A processor folds."""
        self._run(self.world.fold(worker, most))

    @step(rule, worker=_workers, is_overtaken=st.booleans())
    def decide(self, worker: str, is_overtaken: bool) -> None:
        """A processor decides; between what it reads and what it writes, the other one may fold."""

        async def fold() -> None:
            await self.world.fold("B" if worker == "A" else "A")

        self._run(self.world.decide(worker, fold if is_overtaken else None))

    @step(rule, worker=_workers, what=st.sampled_from(("tend", "restart")))
    def lease(self, worker: str, what: str) -> None:
        """A processor renews its leases and takes or gives up some; or is killed."""
        self._run({"tend": self.world.tend, "restart": self.world.restart}[what](worker))

    @step(rule, missed=st.sampled_from(("deletion", "recreation", "nothing")), is_finished=st.booleans())
    def relist(self, missed: str, is_finished: bool) -> None:
        """Webs are listed again: what happened in between is skipped."""
        names = sorted(key.name for key in self.world.cluster.objects)
        if names and missed != "nothing":
            self._change(names[0], "delete" if missed == "deletion" else "anew")
        self.world.ingest.list(WEBS, is_finished=is_finished)

    @step(rule, number=st.integers(0, 5))
    def repeat(self, number: int) -> None:
        """A record arrives a second time."""
        self.world.ingest.repeat(number)

    @step(rule, name=_names, number=st.integers(0, 11))
    def repeat_receipt(self, name: str, number: int) -> None:
        """A receipt arrives a second time, after an object was handled in other states."""
        for change in ("size=2", "config=c1", "size=1"):
            self._change(name, change)
            self._run(self.world.rest())
        told = [logged for logged in self.world.log.records if isinstance(logged.record, ReceiptNoted)]
        logged = told[-1 - number % len(told)]
        self.world.log.append(logged.record, logged.partition)
        self._run(self._followed("call"))

    @step(rule, name=_names, most=_few, number=st.integers(0, 5), outcome=_outcomes)
    def live_shortly(self, name: str, most: int, number: int, outcome: str) -> None:
        """A Web is made, made anew, and gone, before all that is asked for it was called."""
        self._change_and("call", name, "anew")
        self._run(self.world.caller.finish(number, "returns"))
        self._change_and("process", name, "anew")
        self._run(self.world.caller.claim(most))
        self._change_and("fold", name, "delete")
        self._run(self.world.caller.finish(-1, outcome))

    @step(rule, minutes=st.sampled_from((1, 5)))
    def advance(self, minutes: float) -> None:
        """Time passes, and what is due then is decided on."""
        self.world.advance(minutes)
        self._run(self.world.process())

    @step(rule, first=st.sampled_from(JUMPS), then=st.sampled_from((*JUMPS, 0)), name=_names, outcome=_outcomes)
    def jump(self, first: float, then: float, name: str, outcome: str) -> None:
        """The database's clock is set, an object changes and is called for, and the clock is set again."""
        self.world.advance(first)
        self._change_and("call", name, "size=2" if self.world.now.minute % 2 else "config=c1")
        self._change_and("process", name, "size=1")
        self._run(self.world.caller.finish(0, outcome))
        self.world.advance(then)
        self._run(self.world.rest())

    @step(rule)
    def rest(self) -> None:
        """Everything comes to rest."""
        self._run(self.world.rest())

    @invariant()
    def holds(self) -> None:
        """No call was wrong."""
        self._run(self._check())

    async def _check(self) -> None:
        self.world.check()

    async def _carry_out(self) -> None:
        await self.world.caller.claim(1000)
