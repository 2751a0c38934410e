"""Each request of ingest, and of an actuator that starts, fails once in each way: nothing is lost, nothing done twice.

A story is told once without faults, which tells the requests; then once for each way to fail, in which each request
fails once, in each part of the story, before it goes through. All stories are told side by side, each in a namespace, a
log and a database of its own, on one API server. Effective writes are counted at the proxy of the actuator.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from levelog_ingest import feed
from levelog_ingest.sync import ListPage, list_pages
from levelog_kube.client import KubeClient
from rigs.api import Api
from rigs.apirequests import ApiRequest, asks
from rigs.controlplane import ControlPlane
from rigs.faults import (
    Action,
    CutLine,
    DropWatch,
    ExpireWatch,
    FailAfter,
    FailBefore,
    ForwardTwice,
    Hold,
    Refuse,
    StallWatch,
)
from rigs.meters import METERS
from rigs.meterstack import Effects, MeterStack, lists
from rigs.migrated import migrate
from rigs.nats import NatsServer
from rigs.run.examples import short_or_whole

OF_ALL: Final[tuple[Action, ...]] = (FailBefore(), Refuse(code=503), FailAfter(), Hold(stage="answer"))
OF_READS: Final[tuple[Action, ...]] = (ForwardTwice(),)
OF_LISTS: Final[tuple[Action, ...]] = (Refuse(code=410),)
OF_WATCHES: Final[tuple[Action, ...]] = (
    CutLine(after_lines=0),
    StallWatch(after_lines=1),
    DropWatch(after_lines=1),
    ExpireWatch(after_lines=1),  # what was told is told again
)
STREAMED: Final = (*OF_ALL, *OF_READS, *OF_LISTS, *OF_WATCHES)
PAGED: Final = (*OF_ALL, *OF_READS, *OF_LISTS)
WAYS: Final = [*((False, action) for action in STREAMED), *((True, action) for action in PAGED)]
"""Whether lists are in pages, and how requests fail."""
FEW_WAYS: Final[list[tuple[bool, Action]]] = [
    (False, FailAfter()),
    (False, DropWatch(after_lines=1)),
    (True, FailBefore()),
]
FEWEST: Final = {"ingest": 19, "actuate": 3}
"""Requests of the story at least: of ingest version, identity, permissions, discovery, lists and watches."""
EFFECTS: Final[Effects] = Counter(
    {("patch", "append"): 3, ("patch", "apply-1"): 1, ("patch", "apply-2"): 2, ("delete", "apply-1"): 1}
)
"""Effective writes that the story calls for."""
BEGINNING, WATCHING, FORGOTTEN = "beginning", "watching", "forgotten"

Report = Callable[[str, object], None]


class Request(NamedTuple):
    """What is asked, by whom, and in which part of the story."""

    part: str
    who: str
    verb: str
    resource: str
    name: str
    detail: str

    def __str__(self) -> str:
        return " ".join(each for each in (self.part, *self[2:]) if each)

    def may_be(self, action: Action) -> bool:
        """Whether it can fail in this way."""
        if action in OF_WATCHES:  # the watch that finds its history forgotten has no lines
            return self.verb == "watch" and (self.detail == "list" or self.part != FORGOTTEN)
        if action in OF_LISTS:  # after a page that is refused in this way, lists are asked for in one piece
            return self.verb in {"list", "watch"} and self.detail != "continued"
        return action not in OF_READS or self.verb != "watch"


class Story:
    """One telling: with one way to fail, or none, and with lists in pages or not."""

    def __init__(self, stack: MeterStack, action: Action | None, *, is_paged: bool) -> None:
        self.asked: list[Request] = []
        """What every telling asks, each once, in the order in which it was asked first."""
        self._action = action
        self._is_closed = False
        """Whether no list gets as far as failing."""
        self._is_paged = is_paged
        self._part = BEGINNING
        self._stack = stack
        self._failing: dict[int, Request] = {}
        """By the identity of what the proxy was asked."""
        if is_paged:  # a server that cannot stream lists
            stack.ingest.add(Refuse(code=422), lambda request: request.verb == "watch" and lists(request), times=None)
        else:  # a resource that is served a little later
            stack.ingest.add(Refuse(code=404), asks("get", "/apis/example.com/v1"))
        self._rules = [
            proxy.add(action or FailBefore(), self._fails(who), times=None)
            for who, proxy in (("ingest", stack.ingest), ("actuate", stack.actuate))
        ]

    @property
    def failed(self) -> set[Request]:
        """With which it has gone wrong."""
        return {self._failing[id(request)] for rule in self._rules for request in rule.applied}

    async def tell(self) -> None:
        """Objects are made; watches end and go on; history is lost, and meanwhile an object that levelog made."""
        stack = self._stack
        await stack.create("append", "append")
        await stack.create("apply", "apply")
        await stack.converges()
        self._part = WATCHING
        stack.end_watches()
        await stack.change("append", 2)
        await stack.change("apply", 2)
        await stack.converges()
        self._part, self._is_closed = FORGOTTEN, True
        async with stack.forgotten():
            await stack.remove("apply-2")
            await stack.change("append", 3)
            self._is_closed = False
        await stack.converges()
        assert stack.effects() == EFFECTS, self._action
        assert (await stack.meters())["append"]["spec"]["entries"] == [1, 2, 3], self._action

    def _is_called_for(self, asked: Request) -> bool:
        """Whether it is asked however busy the machine is.

        A watch that is silent goes on anew after a look at the history, and which objects the first list finds is open.
        """
        if asked.part == BEGINNING:
            if asked.verb == "list":
                return self._is_paged and not asked.detail
            return asked.verb != "watch" or bool(asked.detail)
        if asked.part == WATCHING:
            return asked.verb == "watch" and not asked.detail
        return asked.verb in {"list", "watch"} and (asked.detail != "continued" or asked.resource == METERS)

    def _fails(self, who: str) -> Callable[[ApiRequest], bool]:
        """Whether a request can fail in this way, and has not failed yet in this part of the story."""

        def fails(request: ApiRequest) -> bool:
            is_left_out = self._is_paged and request.verb != "list"
            is_closed = self._is_closed and lists(request)
            if is_left_out or is_closed or request.name.startswith(("append", "apply")):
                return False
            asked = Request(self._part, who, request.verb, request.resource, request.name, _detail(request))
            if not self._is_called_for(asked):
                return False
            if asked not in self.asked:
                self.asked.append(asked)
            if self._action is None or not asked.may_be(self._action) or asked in self.failed:
                return False
            self._failing[id(request)] = asked  # which the proxy's log keeps
            return True

        return fails


def _detail(request: ApiRequest) -> str:
    """What tells requests apart that are alike in everything else."""
    if request.verb == "create":  # a review of permissions
        attributes: dict[str, Any] = msgspec.json.decode(request.body)["spec"]["resourceAttributes"]
        return f"{attributes['verb']} {attributes['resource']}"
    if request.verb == "list":
        return "continued" if "continue" in request.query else ""
    return "list" if lists(request) else ""


class Stage:
    """Where stories are told."""

    def __init__(self, admin: Api, server: NatsServer, folder: Path) -> None:
        self._admin = admin
        self._server = server
        self._folder = folder

    async def tell(self, number: int, action: Action | None = None, *, is_paged: bool) -> Story:
        """Each number once."""
        folder = self._folder / str(number)
        folder.mkdir()
        shutil.copy(self._folder / "levelog.db", folder)
        url = f"nats://u{number}:u{number}@127.0.0.1:{self._server.port}"
        namespace = await self._admin.create_namespace()
        stack = MeterStack(self._admin, url, f"sqlite:///{folder}/levelog.db", folder, namespace)
        story = Story(stack, action, is_paged=is_paged)
        try:
            async with asyncio.timeout(400), stack:
                await story.tell()
        except Exception as error:
            error.add_note(f"with {action}, {'paged' if is_paged else 'streamed'}")
            raise
        return story


def accounts(numbers: Iterable[int]) -> str:
    """Settings of a NATS server in which each user has streams of its own."""
    each = (f"a{n} {{ jetstream: enabled, users: [{{ user: u{n}, password: u{n} }}] }}\n" for n in numbers)
    return f"authorization {{ timeout: 60 }}\naccounts {{\n{''.join(each)}}}\n"


def in_short_pages(client: KubeClient, path: str, objects: int | None) -> AsyncIterator[ListPage]:
    """Lists with one object a page, so that two are continued."""
    return list_pages(client, path, objects and 1)


@pytest_asyncio.fixture
async def stage(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(feed, "list_pages", in_short_pages)
    deadlines = KubeClient.request.__kwdefaults__
    assert deadlines is not None
    monkeypatch.setitem(deadlines, "timeout", timedelta(seconds=5))
    admin = control_plane.admin
    if not await admin.is_ok("/apis/example.com/v1/meters"):
        await admin.create_crd("Meter")
    await migrate(f"sqlite:///{tmp_path}/levelog.db")
    async with NatsServer(settings=accounts(range(2 + len(WAYS)))) as server:
        yield Stage(admin, server, tmp_path)


@pytest.mark.timeout(900)
async def test_invariant_8_each_request_of_ingest_and_of_a_start_may_fail_in_each_way(
    stage: Stage, record_testsuite_property: Report
) -> None:
    ways = short_or_whole(FEW_WAYS, WAYS)
    undisturbed = [await stage.tell(number, is_paged=bool(number)) for number in range(2)]
    async with asyncio.TaskGroup() as tasks:
        telling = [
            tasks.create_task(stage.tell(number, action, is_paged=is_paged))
            for number, (is_paged, action) in enumerate(ways, start=2)
        ]
    faults = 0
    for (is_paged, action), told in zip(ways, telling, strict=True):
        wanted = {request for request in undisturbed[is_paged].asked if request.may_be(action)}
        assert wanted <= told.result().failed, action
        faults += len(wanted)
    points = [request for story in undisturbed for request in story.asked]
    for who, fewest in FEWEST.items():
        assert sum(request.who == who for request in points) >= fewest, points
    record_testsuite_property("points ingest and starts", len(points))
    record_testsuite_property("faults ingest and starts", faults)
    print(f"{len(points)} points, {faults} faults: {', '.join(map(str, points))}")
