"""An operator that sees the cluster late, in part, or dies between two steps: it writes nothing that is wrong.

Sieve's three patterns (OSDI 2022) against kube-apiserver, which a proxy lets `levelog run` see as it likes.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from rigs.api import Api
from rigs.apirequests import ApiRequest
from rigs.controlplane import ControlPlane
from rigs.faultproxy import FaultProxy
from rigs.faults import StallWatch, Strike
from rigs.levelog import Levelog, Running
from rigs.waiting import until

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PARENTS: Final = "/apis/example.com/v1/namespaces/default"
CORE: Final = "/api/v1/namespaces/default"

Write = tuple[str, str, str]
"""Verb, resource, name."""


class Story(NamedTuple):
    """What is done with a parent and a child of an example, as merge patches of the parent's spec."""

    example: str
    parent: str
    manifest: str
    children: tuple[str, ...]
    stranger: Mapping[str, Any]
    """Somebody else's object under the name of a child."""
    without_child: Mapping[str, Any]
    away: Mapping[str, Any]
    back: Mapping[str, Any]
    """After `away` everything is as before it."""
    with_child: Mapping[str, Any]
    turned: Mapping[str, Any]
    writes: Mapping[Write, int]
    """That `turned` needs."""

    @property
    def child(self) -> str:
        return str(self.stranger["metadata"]["name"])

    @property
    def collection(self) -> str:
        return f"{CORE}/{self.children[0]}"


WEBS: Final = Story(
    example="webs",
    parent="webs/shop",
    manifest="shop.yaml",
    children=("pods",),
    stranger={"metadata": {"name": "shop-2"}, "spec": {"containers": [{"name": "own", "image": "own"}]}},
    without_child={"replicas": 2},
    away={"replicas": 0},
    back={"replicas": 2},
    with_child={"replicas": 3},
    turned={"image": "another"},
    writes={(verb, "pods", f"shop-{number}"): 1 for verb in ("delete", "patch") for number in range(3)},
)
SITES: Final = Story(
    example="sites",
    parent="sites/blog",
    manifest="blog.yaml",
    children=("services", "configmaps", "deployments.apps"),
    stranger={"metadata": {"name": "blog"}, "spec": {"ports": [{"port": 1}]}},
    without_child={"port": 0},
    away={"pages": {"more": "more"}},
    back={"pages": {"more": None}},
    with_child={"port": 8080},
    turned={"pages": {"more": "other"}},
    writes={("patch", "configmaps", "blog-pages"): 1, ("patch", "deployments.apps", "blog"): 1},
)


class Seen:
    """A cluster as levelog sees it: through a proxy that holds back what happens to children."""

    def __init__(self, story: Story, cluster: ControlPlane, proxy: FaultProxy, levelog: Levelog) -> None:
        self.api: Api = cluster.admin
        self.proxy = proxy
        self._story = story
        self._levelog = levelog
        self._process: Running | None = None
        self._since = 0

    def start(self) -> None:
        self._process = self._levelog.start("run", EXAMPLES / self._story.example / f"{self._story.example}.py")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def is_of_child(self, request: ApiRequest) -> bool:
        return request.resource in self._story.children

    @asynccontextmanager
    async def held(self, *others: str, is_lost: bool = False) -> AsyncGenerator[None]:
        """Meanwhile watches show nothing of children, and of these; at the end all of it, or, if it is lost, nothing.

        What is lost has to be listed.
        """
        names = (*self._story.children, *others)
        rule = self.proxy.add(
            StallWatch(), lambda request: request.verb == "watch" and request.resource in names, times=None
        )
        stalled = [watch for watch in self.proxy.watches if watch.request.resource in names]
        for watch in stalled:
            watch.stall()
        yield
        if is_lost:
            for watch in [watch for watch in self.proxy.watches if watch.request.resource in names]:
                watch.drop("reset")
        self.proxy.remove(rule)
        for watch in stalled:
            watch.resume()

    async def edit(self, spec: Mapping[str, Any]) -> None:
        await self.api.patch(f"{PARENTS}/{self._story.parent}", {"spec": spec})

    async def uid_of_child(self) -> str:
        _, found = await self.api.request("GET", f"{self._story.collection}/{self._story.child}")
        return str(found.get("metadata", {}).get("uid", ""))

    def writes(self) -> Counter[Write]:
        """Effective ones since `forget`."""
        found = self.proxy.log.effective_writes(self.is_of_child, since=self._since)
        return Counter((each.verb, each.resource, each.name) for each in found)

    def forget(self) -> None:
        self._since = len(self.proxy.log)

    async def in_sync(self) -> None:
        async def is_in_sync() -> bool:
            assert self._process is not None
            self._process.check()
            return {level["status"] for level in await self._levelog.levels()} == {"in_sync"}

        await until(is_in_sync, "levels in sync", seconds=90, pause=0.2)

    async def until_written(self, wanted: Mapping[Write, int]) -> None:
        """Wait until these are the writes, and levels are in sync."""
        await until(lambda: not Counter(wanted) - self.writes(), f"{wanted} among the writes", seconds=90)
        await self.in_sync()
        assert self.writes() == wanted


@asynccontextmanager
async def seen(story: Story, cluster: ControlPlane, folder: Path) -> AsyncGenerator[Seen]:
    """The example runs, and has made its children."""
    example = EXAMPLES / story.example
    await cluster.admin.create(DEFINITIONS, yaml.safe_load((example / "crd.yaml").read_text()))
    manifest = yaml.safe_load((example / story.manifest).read_text())
    await cluster.admin.apply(f"{PARENTS}/{story.parent.partition('/')[0]}", manifest)
    async with FaultProxy(cluster.url, ca_file=cluster.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(folder / "kubeconfig", token=cluster.admin_token)
        view = Seen(story, cluster, proxy, Levelog(folder, kubeconfig))
        view.start()
        try:
            await until(view.uid_of_child, "children", seconds=90)
            await view.in_sync()
            view.forget()
            yield view
        finally:
            view.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", [WEBS, SITES], ids=lambda story: story.example)
async def test_an_operator_that_sees_late_or_dies_between_steps_writes_nothing_wrong(
    private_control_plane: ControlPlane, tmp_path: Path, story: Story
) -> None:
    cluster = private_control_plane
    async with seen(story, cluster, tmp_path) as view:
        # A stale view: the child is long gone, and under its name is what somebody else made.
        async with view.held():
            await view.api.request("DELETE", f"{story.collection}/{story.child}")
            await view.api.create(story.collection, story.stranger)
            stranger = await view.uid_of_child()
            await view.edit(story.without_child)
            await until(lambda: refused(view), "a deletion that is refused")
            view.kill()
            view.start()
        await view.in_sync()
        assert await view.uid_of_child() == stranger
        assert view.writes() == {}
        await view.api.request("DELETE", f"{story.collection}/{story.child}")
        # States that are never seen: the API server forgets them before anybody may watch again.
        async with view.held(f"{story.parent.partition('/')[0]}.example.com", is_lost=True):
            await view.edit(story.away)
            await view.edit(story.back)
            await cluster.expire_history()
        await view.edit(story.with_child)
        created = {("patch", story.children[0], story.child): 1}
        await view.until_written(created)
        # A step that nobody observes: it dies after its first write, and sees nothing of it when it is back.
        view.forget()
        strike = view.proxy.add(
            Strike(call=view.kill, stage="answer", is_last=True), lambda r: r.is_write and view.is_of_child(r)
        )
        async with view.held():
            await view.edit(story.turned)
            await strike.until_applied()
            view.start()
            await until(lambda: watched(view, story), "watches that show nothing")
        await view.until_written(story.writes)


async def refused(view: Seen) -> bool:
    """Whether a deletion was answered 409."""
    return any(each.request.verb == "delete" and each.given == 409 for each in view.proxy.log)


async def watched(view: Seen, story: Story) -> bool:
    """Whether each kind of children is watched again."""
    return {each.request.resource for each in view.proxy.watches} >= set(story.children)
