"""The rules: what users, watches, processors, actuators and time may do, in any order."""

from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from rigs.machine.cluster import CONFIGS, KINDS, PARTS, RACKS, WEBS, Body, Cluster, key_of
from rigs.machine.laboratory import Meanwhile
from rigs.machine.operator import UNKNOWN
from rigs.machine.steps import SteppedMachine, step
from rigs.machine.world import World

WEB_NAMES: Final = ("w0", "w1")
PART_NAMES: Final = ("w0-0", "w0-1", "w1-0")
CONFIG_NAMES: Final = ("c0", "c1")

_webs = st.sampled_from(WEB_NAMES)
_parts = st.sampled_from(PART_NAMES)
_configs = st.sampled_from(CONFIG_NAMES)
_resources = st.sampled_from(sorted(KINDS))
_workers = st.sampled_from("AB")
_few = st.sampled_from((1000, 1, 2, 3))
_then = st.sampled_from(("process", "process", "A", "B", "watch", "fold"))
"""What follows a change at once, so that short examples reach far: watched, folded by all, decided on by all or one."""

Edit = Callable[[Body], None]


def set_spec(**fields: Any) -> Edit:
    return lambda body: body["spec"].update(fields)


def set_label(name: str, value: str) -> Edit:
    def edit(body: Body) -> None:
        labels = body["metadata"].setdefault("labels", {})
        if value:
            labels[name] = value
        else:
            labels.pop(name, None)

    return edit


def touch(body: Body) -> None:
    body["status"] = body.get("status", 0) + 1


def _toggle_finalizer(body: Body) -> None:
    if body["metadata"].pop("finalizers", None) is None:
        body["metadata"]["finalizers"] = ["x"]


WEB_CHANGES: Final[dict[str, Edit]] = {
    **{f"config={name}": set_spec(config=name) for name in CONFIG_NAMES},
    **{f"size={size}": set_spec(size=size) for size in (0, 1, 2)},
    **{f"team={team}": set_spec(team=team) for team in ("a", "b", "*")},
    "noise": touch,
    "finalizer": _toggle_finalizer,
}

PART_CHANGES: Final[dict[str, Edit]] = {
    **{f"team={team}": set_label("team", team) for team in ("a", "b", "!")},
    **{f"app={app}": set_label("app", app) for app in ("web", "")},
    **{f"config={name}": set_label("config", name) for name in CONFIG_NAMES},
    "color=odd": set_spec(color="odd"),
    "color=?": set_spec(color=UNKNOWN),
    "no owner": lambda body: body["metadata"].update(ownerReferences=[]),
    "noise": touch,
    "finalizer": _toggle_finalizer,
}

RACK_CHANGES: Final[dict[str, Edit]] = {
    "webs=none": set_spec(webs=[]),
    "webs=w2": set_spec(webs=["w2"]),
    "webs=both": set_spec(webs=["w1", "w2"]),
    **{f"size={size}": set_spec(size=size) for size in (0, 2)},
    "noise": touch,
    "finalizer": _toggle_finalizer,
}

JUMPS: Final = (-43_200, 43_200, -60, 60, -0.1, 0.1)
"""Minutes by which a clock is set forward or back: seconds, an hour, thirty days."""

COLORS: Final = ("red", "blue", "@c1", "!", UNKNOWN)


def _own(cluster: Cluster, web: str, kind: str = "Web") -> Edit:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "name": web,
        "uid": cluster.uid(WEBS, web),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return lambda body: body["metadata"].update(ownerReferences=[owner] if owner["uid"] else [])


class LevelsMachine(SteppedMachine[World]):
    """All that may happen to one application; the invariants are checked after each step."""

    @step(
        initialize,
        listed=st.sampled_from((tuple(KINDS), tuple(KINDS), tuple(KINDS), (WEBS, PARTS), ())),
        is_shared=st.booleans(),
        webs=st.sampled_from((WEB_NAMES, WEB_NAMES[:1])),
        configs=st.sampled_from((CONFIG_NAMES, CONFIG_NAMES[:1], ())),
        is_together=st.booleans(),
        has_rack=st.booleans(),
    )
    def begin(
        self,
        listed: tuple[str, ...],
        is_shared: bool,
        webs: tuple[str, ...],
        configs: tuple[str, ...],
        is_together: bool,
        has_rack: bool = False,
    ) -> None:
        """Some objects are there, some resources are listed, one or two processors begin, maybe with the actuator."""
        self.world.is_together = is_together
        for name in webs:
            self._create(WEBS, name)
        for name in configs:
            self._create(CONFIGS, name)
        if has_rack:
            self._create(RACKS, "rack")
        for resource in listed:
            self.world.ingest.list(resource)
        self._run(self._begin(is_shared))

    async def _begin(self, is_shared: bool) -> None:
        for name in "ABAB" if is_shared else "A":
            await self.world.tend(name)
        await self.world.process()

    @step(rule, name=_webs, change=st.sampled_from(("delete", "delete and collect", *WEB_CHANGES)), then=_then)
    def change_web(self, name: str, change: str, then: str) -> None:
        """A user changes a Web; one that is not there is made."""
        if change.startswith("delete"):
            self._delete(WEBS, name)
            if change.endswith("collect"):
                self._collect()
        else:
            self._edit(WEBS, name, WEB_CHANGES[change])
        self._follow(WEBS, then)

    @step(
        rule,
        name=_parts,
        change=st.sampled_from(("delete", *(f"owner={web}" for web in WEB_NAMES), *PART_CHANGES)),
        then=_then,
    )
    def change_part(self, name: str, change: str, then: str) -> None:
        """A user changes a part; one that is not there is made, without an owner."""
        if change == "delete":
            self._delete(PARTS, name)
        elif change.startswith("owner="):
            self._edit(PARTS, name, _own(self.world.cluster, change.removeprefix("owner=")))
        else:
            self._edit(PARTS, name, PART_CHANGES[change])
        self._follow(PARTS, then)

    @step(
        rule,
        name=_webs,
        changes=st.lists(st.sampled_from(("size=0", "size=1", "size=2", "config=c1")), max_size=2),
        is_resumed=st.sampled_from((True, True, False)),
        then=_then,
    )
    def pause(self, name: str, changes: list[str], is_resumed: bool, then: str) -> None:
        """A Web leaves the filter of a view that writes, changes, and comes back."""
        self._edit(WEBS, name, set_label("paused", "yes"))
        self._follow(WEBS, then)
        for change in changes:
            self._edit(WEBS, name, WEB_CHANGES[change])
        if is_resumed:
            self._edit(WEBS, name, set_label("paused", ""))
        self._follow(WEBS, then)

    @step(
        rule,
        name=st.sampled_from(("other/w0-0", "other/w0-1", "w0-1", "w1-0")),
        web=_webs,
        owner=st.sampled_from(("Web", "Rack")),
        then=_then,
    )
    def forge(self, name: str, web: str, owner: str, then: str) -> None:
        """Somebody gives a part the uid of a Web as its controller's, from another namespace or as another kind."""
        self._edit(PARTS, name, _own(self.world.cluster, web, owner))
        self._follow(PARTS, then)

    @step(rule, name=_configs, change=st.sampled_from(("delete", *COLORS)), then=_then)
    def change_config(self, name: str, change: str, then: str) -> None:
        """A user changes a config; one that is not there is made."""
        if change == "delete":
            self._delete(CONFIGS, name)
        else:
            self._edit(CONFIGS, name, set_spec(color=change))
        self._follow(CONFIGS, then)

    @step(rule, change=st.sampled_from(("delete", *RACK_CHANGES)), then=_then)
    def change_rack(self, change: str, then: str) -> None:
        """A user changes the Rack, of which Webs are children; if it is not there, it is made, and listed."""
        if not self.world.ingest.is_watching(RACKS):
            self.world.ingest.list(RACKS)
        if change == "delete":
            self._delete(RACKS, "rack")
        else:
            self._edit(RACKS, "rack", RACK_CHANGES[change])
        self._follow(RACKS, then)

    @step(
        rule,
        web=_webs,
        web_change=st.sampled_from(sorted(WEB_CHANGES)),
        part=_parts,
        part_change=st.sampled_from(sorted(PART_CHANGES)),
        config=_configs,
        color=st.sampled_from(COLORS),
        who=st.sampled_from(("all", "A", "B")),
    )
    def race(self, web: str, web_change: str, part: str, part_change: str, config: str, color: str, who: str) -> None:
        """Levels are decided on while what they read changes.

        `all`: what changed is folded by the other processor just before a decision is written. `A`, `B`: only one
        processor folds and decides, while the other one has not begun.
        """
        if who == "all":
            self._edit(WEBS, web, WEB_CHANGES[web_change])
            self.world.ingest.watch(WEBS)
            self._run(self._followed("fold"))
        self._edit(PARTS, part, PART_CHANGES[part_change])
        self._edit(CONFIGS, config, set_spec(color=color))
        for resource in (PARTS, CONFIGS):
            self.world.ingest.watch(resource)
        if who == "all":
            for name in self.world.workers:
                self._run(self.world.decide(name, self._other_folds(name, 1000)))
        else:
            self._edit(WEBS, web, WEB_CHANGES[web_change])
            self.world.ingest.watch(WEBS)
            self._run(self._followed(who))

    @step(
        rule,
        name=_webs,
        change=st.sampled_from([each for each in WEB_CHANGES if each.startswith(("size", "config"))]),
        meanwhile=st.sampled_from(("back", "back", "made anew", "", "size=0", "size=2", "noise")),
        color=st.sampled_from(("", "", "", *COLORS)),
        is_released=st.sampled_from((True, True, False)),
    )
    def outlast(self, name: str, change: str, meanwhile: str, color: str, is_released: bool) -> None:
        """A reconcile function outlasts its batch, and what it was called for changes before it returns."""
        if not self.world.cluster.uid(WEBS, name):
            self._create(WEBS, name)
        self._run(self.world.rest())  # what is under way keeps the function from being called
        before = dict(self.world.cluster.objects[key_of(WEBS, name)]["spec"])
        self._edit(WEBS, name, WEB_CHANGES[change])
        self.world.ingest.watch(WEBS)
        self._run(self._begun_slowly())
        if meanwhile == "back":
            self._edit(WEBS, name, set_spec(**before))
        elif meanwhile == "made anew":
            self._delete(WEBS, name)
            self._edit(WEBS, name, touch)
        elif meanwhile:
            self._edit(WEBS, name, WEB_CHANGES[meanwhile])
        if color:
            self._edit(CONFIGS, "c0", set_spec(color=color))
        for resource in (WEBS, CONFIGS):
            self.world.ingest.watch(resource)
        self._run(self._followed("fold"))
        if is_released:
            self._run(self._released())

    async def _begun_slowly(self) -> None:
        await self._followed("fold")
        for worker in self.world.workers:
            await self.world.decide(worker, is_slow=True)

    async def _released(self) -> None:
        for worker in self.world.workers:
            await self.world.release(worker)
            await self.world.decide(worker)

    @step(
        rule,
        worker=_workers,
        name=_webs,
        changes=st.lists(st.sampled_from(sorted(WEB_CHANGES)), max_size=3),
        most=_few,
    )
    def reconnect(self, worker: str, name: str, changes: list[str], most: int) -> None:
        """A processor's connection to the log is lost while something happens; it reads on in small steps."""
        for change in changes:
            self._edit(WEBS, name, WEB_CHANGES[change])
        self.world.ingest.watch(WEBS)
        self._run(self._reconnected(worker, most))

    async def _reconnected(self, worker: str, most: int) -> None:
        await self.world.reconnect(worker)
        await self.world.fold(worker, most)
        await self.world.decide(worker)

    @step(
        rule,
        name=_webs,
        changes=st.lists(st.sampled_from(("delete", *sorted(WEB_CHANGES))), max_size=3),
        then=_then,
        lost=st.sampled_from(("", "", "", "", "all", "1", "20")),
    )
    def outlive(self, name: str, changes: list[str], then: str, lost: str) -> None:
        """Several changes; `all` records expire, among them these, which no processor has read, or the newest are lost.

        They are if NATS is restored from a copy. Rarely, as the tables begin anew after it.
        """
        for change in changes:
            if change == "delete":
                self._delete(WEBS, name)
            else:
                self._edit(WEBS, name, WEB_CHANGES[change])
        self.world.ingest.watch(WEBS)
        if lost == "all":
            self.world.expire_records()
        elif lost:
            self._run(self.world.restore_log(int(lost)))
        if then != "watch":
            self._run(self._followed(then))

    @step(
        rule,
        name=_webs,
        lost=st.sampled_from(sorted(WEB_CHANGES)),
        part=_parts,
        part_lost=st.sampled_from(sorted(PART_CHANGES)),
        who=st.sampled_from(("A", "B", "process", "fold")),
        then=_then,
    )
    def crash_database(self, name: str, lost: str, part: str, part_lost: str, who: str, then: str) -> None:
        """The database crashes, loses what was folded and decided of two changes, and processors see no error."""

        async def commit() -> None:
            self._edit(WEBS, name, WEB_CHANGES[lost])
            self._edit(PARTS, part, PART_CHANGES[part_lost])
            for resource in (WEBS, PARTS):
                self.world.ingest.watch(resource)
            await self._followed(who)

        self._run(self.world.losing(commit))
        if then != "watch":
            self._edit(WEBS, name, touch)
            self._follow(WEBS, then)

    @step(rule, worker=_workers)
    def release(self, worker: str) -> None:
        """Functions that were slow return."""
        self._run(self.world.release(worker))

    @step(rule, resource=_resources, most=_few)
    def watch(self, resource: str, most: int) -> None:
        """The watch of a resource tells what happened next."""
        self.world.ingest.watch(resource, most)

    @step(
        rule,
        resource=_resources,
        missed=st.sampled_from(("deletion", "recreation", "nothing")),
        end=st.sampled_from(("process", "", "unfinished")),
    )
    def relist(self, resource: str, missed: str, end: str) -> None:
        """A resource is listed again: what happened in between is skipped."""
        names = sorted(key.name for key in self.world.cluster.objects if key.resource == resource)
        if names and missed != "nothing":
            self._delete(resource, names[0])
            if missed == "recreation" and not self.world.cluster.uid(resource, names[0]):
                self._create(resource, names[0])
        self.world.ingest.list(resource, is_finished=end != "unfinished")
        if end == "process":
            self._run(self.world.process())

    @step(rule, changes=st.lists(st.sampled_from(sorted(WEB_CHANGES)), max_size=2), name=_webs, then=_then)
    def rewatch(self, changes: list[str], name: str, then: str) -> None:
        """The namespace is not watched for a while, in which a Web may change."""
        for namespaces in (("other",), ()):
            self.world.ingest.namespaces = namespaces
            self.world.ingest.list_again()
            if then != "watch":
                self._run(self._followed(then))
            for change in changes if namespaces else ():
                self._edit(WEBS, name, WEB_CHANGES[change])

    @step(rule, number=st.integers(0, 5))
    def repeat(self, number: int) -> None:
        """A record arrives a second time."""
        self.world.ingest.repeat(number)

    @step(rule, worker=_workers, most=_few, is_overtaken=st.sampled_from((False, False, False, True)))
    def fold(self, worker: str, most: int, is_overtaken: bool) -> None:
        """A processor folds; it may lose its partitions to the other one before it commits."""
        self._run(self.world.fold(worker, most, self._takeover(worker) if is_overtaken else None))

    @step(
        rule,
        worker=_workers,
        meanwhile=st.sampled_from(("", "", "fold", "fold one", "takeover")),
        is_slow=st.sampled_from((False, False, False, True)),
    )
    def decide(self, worker: str, meanwhile: str, is_slow: bool) -> None:
        """A processor decides; between what it reads and what it writes, the other one folds, or takes over.

        With `is_slow` the reconcile functions that it calls return in a later step.
        """
        between = {"": None, "takeover": self._takeover(worker)}.get(
            meanwhile, self._other_folds(worker, 1 if meanwhile == "fold one" else 1000)
        )
        self._run(self.world.decide(worker, between, is_slow=is_slow))

    @step(
        rule,
        disturbance=st.sampled_from(("", "", "", "", "lost", "lost", "dropped", "unreachable", "busy", "refused")),
        end=st.sampled_from(("relay", "process", "ahead", "", "crash")),
    )
    def send(self, disturbance: str, end: str) -> None:
        """An actuator carries out one intent; its receipt gets into the log at once, later, or it is killed before.

        `process`: all is decided on then; `ahead`: a minute later, before the watches show what it wrote.
        """
        self._run(self._send(disturbance, end))

    async def _send(self, disturbance: str, end: str) -> None:
        await self.world.sender.send(disturbance, is_killed=end == "crash")
        if end in ("relay", "process", "ahead"):
            await self.world.sender.relay()
        if end == "process":
            for resource in KINDS:
                self.world.ingest.watch(resource)
        elif end == "ahead":
            self.world.advance(1)
        if end in ("process", "ahead"):
            await self.world.process()

    @step(rule, step=st.sampled_from(("claim", "relay")))
    def act(self, step: str) -> None:
        """An actuator claims intents and holds them, or hands over receipts."""
        self._run(self.world.sender.claim(2) if step == "claim" else self.world.sender.relay())

    @step(rule, worker=_workers, what=st.sampled_from(("tend", "expire", "restart")))
    def lease(self, worker: str, what: str) -> None:
        """A processor renews its leases and takes or gives up some; or stands still too long; or is killed.

        Every second one that is killed is followed by others with changed code.
        """
        self._run({"tend": self.world.tend, "expire": self.world.expire, "restart": self.world.restart}[what](worker))

    @step(rule, minutes=st.sampled_from((1, 5, 0.02)))
    def advance(self, minutes: float) -> None:
        """Time passes, and what is due then is decided on."""
        self.world.advance(minutes)
        self._run(self.world.process())

    @step(
        rule,
        first=st.sampled_from(JUMPS),
        then=st.sampled_from((*JUMPS, 0)),
        name=_webs,
        change=st.sampled_from(("size=1", "size=2", "anew")),
    )
    def jump(self, first: float, then: float, name: str, change: str) -> None:
        """The database's clock is set, a Web changes whose part the API refuses, and the clock is set again."""
        self.world.advance(first)
        self._get_stuck(name)
        if change == "anew":
            self._delete(WEBS, name)
            self._create(WEBS, name)
        else:
            self._edit(WEBS, name, WEB_CHANGES[change])
        self._follow(WEBS, "process")
        self.world.advance(then)
        self._run(self.world.rest())

    @step(rule, worker=_workers, minutes=st.sampled_from((-6, 6, -0.5, 0)), name=_webs, is_stuck=st.booleans())
    def skew(self, worker: str, minutes: float, name: str, is_stuck: bool) -> None:
        """The clock of a processor's machine steps, and differs from the database's and the other one's.

        With `is_stuck` the API refuses what a Web asks for, a part of another one's, so that it is tried again later.
        """
        self.world.set_clock(worker, minutes)
        if is_stuck:
            self._get_stuck(name)

    @step(rule)
    def rest(self) -> None:
        """Everything comes to rest."""
        self._run(self.world.rest())

    @invariant()
    def holds(self) -> None:
        """What the tables say is what it should be."""
        self._run(self.world.check())

    def _create(self, resource: str, name: str) -> None:
        contents: dict[str, Body] = {
            WEBS: {"spec": {"config": "c0", "size": 1, "team": "a", "deadline": 5 if name == "w1" else 0}},
            PARTS: {"spec": {"color": "red"}, "metadata": {"labels": {"app": "web", "team": "a"}}},
            CONFIGS: {"spec": {"color": "red"}},
            RACKS: {"spec": {"webs": ["w2"], "size": 1}},
        }
        self.world.cluster.create(resource, name, contents[resource])

    def _get_stuck(self, name: str) -> None:
        """Let a Web want a part that another one owns, which is tried again at a slowing pace."""
        other = next(each for each in WEB_NAMES if each != name)
        self._edit(WEBS, other, touch)
        self._edit(PARTS, f"{name}-0", _own(self.world.cluster, other))
        self._edit(WEBS, name, set_spec(size=1))
        self._run(self.world.rest())

    def _edit(self, resource: str, name: str, edit: Edit) -> None:
        if not self.world.cluster.uid(resource, name):
            self._create(resource, name)
        self.world.cluster.change(resource, name, edit)

    def _delete(self, resource: str, name: str) -> None:
        if self.world.cluster.uid(resource, name):
            self.world.cluster.delete(resource, name)

    def _collect(self) -> None:
        for name in self.world.cluster.orphans():
            self._delete(PARTS, name)

    def _follow(self, resource: str, then: str) -> None:
        self.world.ingest.watch(resource)
        if then != "watch":
            self._run(self._followed(then))

    async def _followed(self, then: str) -> None:
        workers = {"A": "A", "B": "B"}.get(then, "AB")
        for name in workers:
            await self.world.fold(name)
        if then != "fold":
            for name in workers:
                await self.world.decide(name)

    def _other_folds(self, worker: str, most: int) -> Meanwhile:
        async def fold() -> None:
            await self.world.fold(_other(worker), most)

        return fold

    def _takeover(self, worker: str) -> Meanwhile:
        async def take() -> None:
            await self.world.expire(worker)
            await self.world.tend(_other(worker))
            await self.world.fold(_other(worker))

        return take


def _other(worker: str) -> str:
    return "B" if worker == "A" else "A"
