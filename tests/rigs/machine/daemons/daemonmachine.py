"""The rules of the daemons' machine: what users, processors, actuators and daemons may do, in any order.

What it leaves out: daemons that give up; daemons of Kopf files.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from rigs.machine.daemons.daemonworld import HOLDERS, DaemonWorld
from rigs.machine.edges.edgemachine import WebsMachine
from rigs.machine.machine import WEB_NAMES
from rigs.machine.steps import step

_names = st.sampled_from(WEB_NAMES)
_holders = st.sampled_from(HOLDERS)
_changes = st.sampled_from(("delete", "anew", "app=web", "app=other", "size=2", "noise"))
_then = st.sampled_from(("claim", "claim", "process", "fold", "watch"))
"""What follows a change at once: watched, folded, decided on, claimed by the first actuator."""
_commands = st.sampled_from(("keeps", "keeps", "keeps late", "returns", "fails", "retries", "stubborn"))


class DaemonsMachine(WebsMachine[DaemonWorld]):
    """All that may happen to the daemons of one application; what runs at rest is compared with what has to."""

    @step(initialize, webs=st.sampled_from((WEB_NAMES, WEB_NAMES[:1])), is_shared=st.booleans(), then=_then)
    def begin(self, webs: tuple[str, ...], is_shared: bool, then: str) -> None:
        """Some objects are there, and one or two processors begin."""
        self._begin(webs, then, is_shared=is_shared)

    @step(rule, name=_names, change=_changes, then=_then)
    def change(self, name: str, change: str, then: str) -> None:
        """A user changes a Web; one that is not there is made."""
        self._change_and(then, name, change)

    @step(rule, holder=_holders, most=st.sampled_from((1000, 1)), is_late=st.booleans())
    def claim(self, holder: str, most: int, is_late: bool) -> None:
        """An actuator claims runs, and begins them; what is late of earlier claims may be stored before."""
        self._run(self.world.holders[holder].claim(most, is_late=is_late))

    @step(rule, holder=_holders, number=st.integers(0, 3), what=_commands)
    def command(self, holder: str, number: int, what: str) -> None:
        """A daemon keeps its state, or ends."""
        self._run(self.world.holders[holder].command(number, what))

    @step(
        rule, holder=_holders, what=st.sampled_from(("keep claims", "hear", "store", "store", "wake", "arrive", "beat"))
    )
    def act(self, holder: str, what: str) -> None:
        """An actuator does one of the things that it does again and again."""
        actor = self.world.holders[holder]
        steps = {
            "keep claims": actor.keep_claims,
            "hear": actor.hear,
            "store": actor.store,
            "wake": actor.wake,
            "arrive": actor.arrive,
            "beat": actor.beat,
        }
        self._run(steps[what]())

    @step(rule, holder=_holders, finder=_holders, what=st.sampled_from(("lapse", "vanish", "kill", "shut down")))
    def disturb(self, holder: str, finder: str, what: str) -> None:
        """An actuator stands still beyond its claims, or its heartbeat; is killed, or ends in order."""
        self._run(self._disturb(holder, finder, what))

    async def _disturb(self, holder: str, finder: str, what: str) -> None:
        match what:
            case "lapse":
                await self.world.lapse(holder)
            case "vanish":
                await self.world.vanish(holder, finder)
            case "kill":
                await self.world.kill(holder)
            case _:
                await self.world.shut_down(holder)

    @step(rule, holder=_holders, heir=_holders, back=st.sampled_from(("alone", "", "killed", "shut down", "lapsed")))
    def hand_over(self, holder: str, heir: str, back: str) -> None:
        """An actuator that has kept something stands still, and another one may go on, and lose it again."""
        self._run(self._hand_over(holder, heir, back))

    @step(
        rule,
        holder=_holders,
        heirs=st.permutations(HOLDERS),
        back=st.sampled_from(("killed", "shut down", "lapsed")),
        late=st.sampled_from(("keeps late", "returns")),
    )
    def come_late(self, holder: str, heirs: Sequence[str], back: str, late: str) -> None:
        """The same, and what the first one did before it stood still is stored once it has the claim again."""
        heir = next(each for each in heirs if each != holder)
        self._run(self._hand_over(holder, heir, back, late))

    async def _hand_over(self, holder: str, heir: str, back: str, late: str = "") -> None:
        world = self.world
        await world.holders[holder].command(0, "keeps")
        if late:
            await world.holders[holder].command(0, late)
        await world.lapse(holder)
        if back == "alone":
            await world.holders[holder].command(0, "keeps")
            return
        await world.holders[heir].claim()
        await world.holders[heir].command(0, "keeps")
        match back:
            case "killed":
                await world.kill(heir)
                await world.bury()
            case "shut down":
                await world.shut_down(heir)
            case "lapsed":
                await world.lapse(heir)
            case _:
                return
        await world.holders[holder].claim(is_late=bool(late))
        await world.holders[holder].command(0, "keeps")

    @step(rule, name=_names, holder=_holders, number=st.integers(0, 3), has_failed=st.booleans())
    def fit_again(self, name: str, holder: str, number: int, has_failed: bool) -> None:
        """A Web does not fit for a while, in which its daemon ends, or waits to be called again."""
        self._change(name, "app=web")
        self._run(self.world.rest())
        actor = self.world.holders[holder]
        self._run(actor.command(number, "keeps"))
        if has_failed:
            self._run(actor.command(number, "fails"))
            self._run(actor.store())
        self._change_and("process", name, "app=other")
        if not has_failed:
            self._run(self.world.rest())
        self._change_and("claim", name, "app=web")

    @step(rule)
    def bury(self) -> None:
        """Actuators that were killed are found to be gone."""
        self._run(self.world.bury())

    @step(rule, then=_then)
    def process(self, then: str) -> None:
        """Receipts are recorded, and folded."""
        self._run(self.world.relay())
        self._run(self._followed(then))

    @step(rule)
    def rest(self) -> None:
        """Everything comes to rest."""
        self._run(self.world.rest())

    async def _carry_out(self) -> None:
        await self.world.holders[HOLDERS[0]].claim()
