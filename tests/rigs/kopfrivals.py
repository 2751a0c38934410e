"""One file of handlers run by Kopf and by levelog, each on a sandbox of its own, and what came of it.

Kopf runs in an environment of its own, `.venv-kopf`, which `make bench` makes.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from levelog_sandbox import Sandbox
from rigs.faultproxy import FaultProxy
from rigs.faults import Hold, Refuse, Strike
from rigs.kinds import definition
from rigs.levelog import Levelog, Running, define
from rigs.processes import Process
from rigs.waiting import until

Side: TypeAlias = Literal["Kopf", "levelog"]
KOPF: Final = Path(__file__).parents[2] / ".venv-kopf/bin/kopf"
SHOPS: Final = "shops.example.com"
DEFINITION: Final = definition("Shop")
_IMPORTS: Final[dict[Side, str]] = {"Kopf": "import kopf", "levelog": "from levelog.compat import kopf"}
_HEAD: Final = """
import asyncio
import json
import time
from pathlib import Path

SHOPS = ("example.com", "v1", "shops")


def tell(*told):
    with Path(__file__).with_name("told.jsonl").open("a") as file:
        file.write(json.dumps(told) + "\\n")


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.scanning.disabled = True


@kopf.on.create(*SHOPS)
def made(name, **_):
    tell("made", name)
"""


class Seen(NamedTuple):
    """What one of them did, and whether it is what its user wants."""

    text: str
    is_right: bool


class Handlers:
    """A file of handlers, and what they told; run by one of the two."""

    def __init__(self, side: Side, folder: Path, kubeconfig: Path, source: str) -> None:
        self.side = side
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._levelog = Levelog(folder, kubeconfig)
        self._process: Process | None = None
        self._starts = 0
        (folder / "shops.py").write_text(_IMPORTS[side] + "\n" + _HEAD + source)

    def start(self) -> None:
        """Run the file, or run it again."""
        self._starts += 1
        if self.side == "levelog":
            self._process = self._levelog.start("run", "shops.py")
            return
        env = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        command: list[str | Path] = [
            KOPF,
            "run",
            "--standalone",
            "--all-namespaces",
            "--quiet",
            self._folder / "shops.py",
        ]
        self._process = Process(command, self._folder / f"kopf-{self._starts}.log", env=env, folder=self._folder)

    async def stop(self) -> None:
        """Ask it to end; what it says meanwhile to a server in this process is answered."""
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def log(self) -> str:
        """What levelog has logged."""
        assert isinstance(self._process, Running)
        return self._process.log.read_text()

    def told(self, *begin: object) -> list[list[Any]]:
        """What handlers told that begins so."""
        file = self._folder / "told.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("]")]
        return [each for each in found if each[: len(begin)] == list(begin)]

    @property
    def patience(self) -> int:
        """How much longer levelog has for what it is expected to do, however busy the machine is."""
        return 6 if self.side == "levelog" else 1

    async def tells(self, *begin: object, seconds: float = 90) -> list[Any]:
        """Wait until handlers have told what begins so; the last of it. Raises TimeoutError."""
        await until(lambda: bool(self.told(*begin)), f"{self.side} to tell {begin}", seconds=seconds)
        return self.told(*begin)[-1]

    async def comes(self, *begin: object, seconds: float) -> bool:
        """Tell whether handlers tell that within a time."""
        with suppress(TimeoutError):
            return bool(await self.tells(*begin, seconds=seconds))
        return False

    async def command(self, *words: str) -> str:
        """What a command of levelog prints that ends well."""
        ended = await self._levelog.ends(*words, seconds=120, env={"COLUMNS": "200"})
        assert ended.status == 0, ended
        return ended.stdout

    async def uninstall(self) -> None:
        """Stop it, and take off what it left on objects, where there is a command for that."""
        await self.stop()
        if self.side == "levelog":
            await self.command("remove-finalizers", "shops.py")


class Rival(Handlers):
    """One of the two, with a cluster of its own, to which it speaks through a proxy."""

    def __init__(self, side: Side, folder: Path, sandbox: Sandbox, proxy: FaultProxy, source: str) -> None:
        super().__init__(side, folder, proxy.kubeconfig(folder / "kubeconfig"), source)
        self.sandbox = sandbox
        self.proxy = proxy

    def make(self, name: str, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "default"}
        self.sandbox.user.create({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": spec})

    def change(self, name: str, **spec: Any) -> None:
        self.sandbox.user.patch(SHOPS, name, {"spec": spec})

    def delete(self, name: str) -> None:
        self.sandbox.user.delete(SHOPS, name)

    async def is_calm(self, seconds: float = 2) -> None:
        """Wait until nothing was written for a while."""
        while True:
            before = len(self.writes())

            async def has_written(before: int = before) -> bool:
                return len(self.writes()) > before

            try:
                await until(has_written, "another write", seconds=seconds)
            except TimeoutError:
                return

    async def goes(self, seconds: float) -> bool:
        """Tell whether there is no Shop any more within a time."""
        with suppress(TimeoutError):
            return await until(lambda: not self.sandbox.user.list(SHOPS), "the end of the object", seconds=seconds)
        return False

    def writes(self) -> list[Any]:
        """Its writes of Shops and Secrets that changed something."""
        found = self.sandbox.requests.writes()
        return [each for each in found if each.user_agent != "user" and each.resource in (SHOPS, "secrets")]


@asynccontextmanager
async def rival(side: Side, folder: Path, source: str, *, starts: bool = True) -> AsyncGenerator[Rival]:
    """One of the two with a file of these handlers, that runs or is yet to be started, on a sandbox that has Shops."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox())
        await define(sandbox, DEFINITION)
        proxy = await stack.enter_async_context(FaultProxy(sandbox.url))
        made = Rival(side, folder, sandbox, proxy, source)
        stack.callback(made.kill)
        if starts:
            made.start()
        yield made


class Case(NamedTuple):
    """One story: its handlers, and what is done to their objects."""

    title: str
    source: str
    story: Callable[[Rival], Awaitable[Seen]]
    starts: bool = True
    """Whether the handlers run before the story begins; else it starts them."""


async def _newest(rival: Rival) -> Seen:
    rival.make("a", size=1)
    await rival.tells("made", "a")
    rival.change("a", size=2)
    await rival.tells("second", 2)
    rival.change("a", size=3)
    await rival.tells("second", 3)
    is_right = await rival.comes("first", 3, seconds=6 * rival.patience)
    sizes = {each: [size for _, size in rival.told(each)] for each in ("first", "second")}
    return Seen(f"first was called for {sizes['first']}, second for {sizes['second']}", is_right)


async def _timeout(rival: Rival) -> Seen:
    rival.make("a")
    _, how, seconds = await rival.tells("ended")
    return Seen(f"with timeout=1, the call {how} after {seconds} s", how == "was cancelled" and seconds < 3)


async def _stale(rival: Rival) -> Seen:
    rival.make("a", size=1)
    rival.make("b", size=1)
    await rival.tells("made", "a")
    await rival.tells("made", "b")
    await rival.is_calm()
    await until(lambda: bool(rival.proxy.watches), f"a watch of {rival.side}")
    for watch in tuple(rival.proxy.watches):
        watch.drop("fin")
    rival.delete("b")
    rival.sandbox.compact()  # what it goes on from is too old
    for size in range(2, 6):
        rival.change("a", size=size)
        if not await rival.comes("looked", size, seconds=10 * rival.patience) or rival.told("looked", size)[-1][2] == [
            "a"
        ]:
            break
    seen = rival.told("looked")
    if not seen:
        return Seen("it handles nothing any more" if rival.is_running else "it has ended", False)
    names = seen[-1][2]
    return Seen(f"{len(seen)} changes later the index has {names}", names == ["a"])


async def _expired(rival: Rival) -> Seen:
    rival.make("a", size=1)
    await rival.tells("made", "a")
    rule = rival.proxy.add(Refuse(code=410), lambda request: request.verb == "watch" and request.resource == SHOPS)
    rival.sandbox.end_watches()
    await until(lambda: bool(rule.applied), "a watch that is refused")
    rival.change("a", size=2)
    is_right = await rival.comes("looked", 2, seconds=15 * rival.patience)
    how = "is handled" if is_right else "is not handled"
    return Seen(f"the next change {how}, and it {'runs' if rival.is_running else 'has ended'}", is_right)


async def _paged(rival: Rival) -> Seen:
    def make_map(name: str) -> None:
        metadata = {"name": name, "namespace": "default"}
        rival.sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def forget() -> None:
        make_map("late")
        rival.sandbox.compact()

    for n in range(600):
        make_map(f"map-{n}")
    rival.proxy.add(Refuse(code=422), lambda request: "sendInitialEvents" in request.query, times=None)
    first_page = rival.proxy.add(
        Strike(call=forget, stage="answer"),
        lambda request: request.resource == "configmaps" and request.query.get("limit") == "500",
    )
    rival.start()
    await until(lambda: bool(first_page.applied), "the first page of a list")
    rival.make("a")
    is_right = await rival.comes("looked", 601, seconds=20 * rival.patience)
    how = "knows all objects" if is_right else f"{'runs' if rival.is_running else 'has ended'} without them"
    return Seen(f"it {how}", is_right)


async def _writes(rival: Rival) -> Seen:
    rival.make("a", size=1)
    await rival.tells("made", "a")
    await rival.is_calm()
    before, handlers = len(rival.writes()), ("one", "two", "three")
    rival.change("a", size=2)

    async def are_shown() -> bool:
        status = rival.sandbox.user.get(SHOPS, "a").get("status", {})
        return [status.get(name) for name in handlers] == [2, 2, 2]

    await until(are_shown, "three results")
    await rival.is_calm()
    count = len(rival.writes()) - before
    notes = rival.sandbox.user.get(SHOPS, "a")["metadata"].get("annotations", {})
    # what ends together is written together, and threads of a loaded machine may not
    return Seen(f"{count} writes for one change, {len(notes)} annotations", count <= len(handlers) and not notes)


async def _secret(rival: Rival) -> Seen:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    rival.sandbox.user.create({**secret, "data": {"password": "aHVudGVyMg=="}})
    await rival.tells("kept", "s")
    await rival.is_calm()
    notes = rival.sandbox.user.get("secrets", "s")["metadata"].get("annotations", {})
    is_copied = any("aHVudGVyMg==" in value for value in notes.values())
    return Seen("the password is in an annotation" if is_copied else "the Secret has no annotation", not notes)


async def _away(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("made", "a")
    await rival.is_calm()
    await rival.stop()
    rival.delete("a")
    rival.start()
    rival.make("b")
    await rival.tells("made", "b")
    is_right = await rival.comes("gone", "a", seconds=5 * rival.patience)
    return Seen(f"the end of an object while it was away is {'handled' if is_right else 'lost'}", is_right)


async def _overtaken(rival: Rival) -> Seen:
    rule = rival.proxy.add(
        Hold(stage="request"), lambda request: request.verb == "patch" and b'"phase"' in request.body, times=None
    )
    rival.make("a")
    await until(lambda: bool(rule.applied), "a patch of the status")
    rival.sandbox.user.patch(SHOPS, "a", {"status": {"phase": "paused"}}, subresource="status")
    rival.proxy.remove(rule)

    async def is_done() -> bool:
        return bool(rival.sandbox.user.get(SHOPS, "a").get("status", {}).get("done") == "yes")

    await until(is_done, "the rest of the patch")
    phase = rival.sandbox.user.get(SHOPS, "a")["status"]["phase"]
    how = "stays" if phase == "paused" else "is written over"
    return Seen(f"the newer value {how}", phase == "paused")


async def _uninstalled(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("made", "a")
    await rival.is_calm()
    await rival.uninstall()
    rival.delete("a")
    is_right = await rival.goes(seconds=5 * rival.patience)
    return Seen(f"the object {'is gone' if is_right else 'stays, with a finalizer'}", is_right)


async def _deaf(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("follows")
    await rival.is_calm()
    rival.delete("a")
    is_right = await rival.goes(seconds=15 * rival.patience)
    return Seen(f"the object {'goes' if is_right else 'stays'}", is_right)


async def _quiet(rival: Rival) -> Seen:
    rival.make("a", size=1)
    await rival.tells("made", "a")
    await rival.is_calm()
    before = len(rival.writes())
    rival.change("a", size=2)
    await rival.tells("tried", 2)
    await rival.is_calm()
    count = len(rival.writes()) - before
    return Seen(f"{count} writes for one change", count == 0)


async def _beside(rival: Rival) -> Seen:
    rival.make("a")
    is_right = await rival.comes("second", seconds=4 * rival.patience)
    return Seen(f"the second handler {'runs beside the first' if is_right else 'waits for the first'}", is_right)


CASES: Final = {
    "newest": Case(
        "two handlers, one waits to be tried again, the spec changes",
        """
@kopf.on.update(*SHOPS)
def first(spec, **_):
    tell("first", spec["size"])


@kopf.on.update(*SHOPS)
def second(spec, **_):
    tell("second", spec["size"])
    if spec["size"] == 2:
        raise kopf.TemporaryError("not yet", delay=2)
""",
        _newest,
    ),
    "timeout": Case(
        "an async handler with timeout=1 takes four seconds",
        """
@kopf.on.create(*SHOPS, timeout=1)
async def slow(**_):
    began = time.monotonic()
    how = "was cancelled"
    try:
        await asyncio.sleep(4)
        how = "went on"
    finally:
        tell("ended", how, round(time.monotonic() - began, 1))
""",
        _timeout,
    ),
    "stale": Case(
        "an object goes while the watch is broken, and what it goes on from is too old",
        """
@kopf.index(*SHOPS)
def names(name, **_):
    return {name: None}


@kopf.on.update(*SHOPS)
def looks(names: kopf.Index, spec, **_):
    tell("looked", spec["size"], sorted(names))
""",
        _stale,
    ),
    "expired": Case(
        "a watch is answered with status 410",
        """
@kopf.on.update(*SHOPS)
def looks(spec, **_):
    tell("looked", spec["size"])
""",
        _expired,
    ),
    "paged": Case(
        "a first list comes in pages, and what it goes on from is too old before the second one",
        """
@kopf.on.startup()
def list_in_pages(settings, **_):
    settings.watching.chunk_size = 500


@kopf.index("v1", "configmaps")
def maps(name, **_):
    return {name: None}


@kopf.on.create(*SHOPS, id="looks")
def looks(maps: kopf.Index, **_):
    tell("looked", len(maps))
""",
        _paged,
        starts=False,
    ),
    "writes": Case(
        "three handlers return a result",
        """
@kopf.on.update(*SHOPS)
def one(spec, **_):
    return spec["size"]


@kopf.on.update(*SHOPS)
def two(spec, **_):
    return spec["size"]


@kopf.on.update(*SHOPS)
def three(spec, **_):
    return spec["size"]
""",
        _writes,
    ),
    "quiet": Case(
        "a handler is tried three times, and has nothing to write",
        """
@kopf.on.update(*SHOPS)
def tries(retry, **_):
    tell("tried", retry)
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=1)
""",
        _quiet,
    ),
    "secret": Case(
        "a handler of Secrets",
        """
@kopf.on.create("v1", "secrets")
def kept(name, **_):
    tell("kept", name)
""",
        _secret,
    ),
    "away": Case(
        "an object goes while nothing runs, on.delete(optional=True)",
        """
@kopf.on.delete(*SHOPS, optional=True)
def gone(name, **_):
    tell("gone", name)
""",
        _away,
    ),
    "beside": Case(
        "the first of two async handlers of an object takes half a minute",
        """
@kopf.on.create(*SHOPS)
async def first(**_):
    await asyncio.sleep(30)


@kopf.on.create(*SHOPS)
async def second(**_):
    tell("second")
""",
        _beside,
    ),
    "deaf": Case(
        "an async daemon that does not look at `stopped`; its object is deleted",
        """
@kopf.daemon(*SHOPS)
async def follow(**_):
    tell("follows")
    while True:
        await asyncio.sleep(1)
""",
        _deaf,
    ),
    "overtaken": Case(
        "somebody writes a field of the status while a handler's patch of it is under way",
        """
@kopf.on.create(*SHOPS)
def phased(patch, **_):
    patch.status["phase"] = "made"
    patch.status["done"] = "yes"
""",
        _overtaken,
    ),
    "uninstalled": Case(
        "on.delete; the operator is uninstalled, then an object deleted",
        """
@kopf.on.delete(*SHOPS)
def gone(**_):
    tell("gone")
""",
        _uninstalled,
    ),
}
"""By name."""


async def compare(case: Case, side: Side, folder: Path) -> Seen:
    """Tell a story to one of the two."""
    async with rival(side, folder, case.source, starts=case.starts) as one:
        return await case.story(one)
