"""An in-process Kubernetes API over real HTTP, for demonstrations and tests.

What it does not imitate, first:

- No TLS, no authentication: all requests are of one user. Authorization is a deny list; the only
  reviews are SelfSubjectReview and SelfSubjectAccessReview. No admission webhooks (but `mutate`), no quota, no priority
  and fairness.
- Nothing runs: no scheduler, no kubelet, no controllers but owner garbage collection and the emptying of namespaces.
  Pods stay Pending, or with `pods_run=True` are Running at once.
- Core kinds are checked against the types and required fields of their OpenAPI and a few rules of their own; many other
  validations of the server, and its defaults beyond the common ones, are missing. Of JSON schema, allOf, anyOf, oneOf,
  not and format are not read. Rules in CEL are, if `pip install cel-expr-python protobuf` was done, but for what the
  head of `schemas/celrules.py` lists; a rule that is not checked is logged as a warning, once.
- No protobuf: kubectl reads, patches, scales, and applies and creates from files, but `kubectl create deployment`,
  `kubectl auth can-i` and the like fail. No eviction, binding, finalize, log or exec; no conversion webhooks.
- One process, in memory; slow watchers are not cut off.

What a client sees of the rest is held to a real kube-apiserver by the suite in `tests/contract/kubernetes`.
"""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from levelog_base.errors import cannot_listen
from levelog_sandbox.api.server import Refuses, Server
from levelog_sandbox.api.urltargets import TOKEN, USER, Access, Denial
from levelog_sandbox.objects.cluster import Cluster
from levelog_sandbox.objects.metadata import Clock
from levelog_sandbox.objects.revisions import Change, Store
from levelog_sandbox.objects.verbs import Mutation
from levelog_sandbox.requestlog import RequestLog
from levelog_sandbox.schemas.registry import anything
from levelog_sandbox.user import User

Json = dict[str, Any]


class Sandbox:
    """An API server, up while the context is open. Entering it raises ConfigurationError if it cannot listen there.

    `port` 0 takes a free one. `history` is the number of changes kept for each kind. `pods_run` makes pods Running.
    Requests of pages in a browser are refused, and those for a name with a dot that is neither `host` nor in `names`.
    `collects_garbage` deletes dependents of absent owners and empties namespaces. `denials` are refused with 403.
    `refuses` is asked before each write over HTTP, with verb, resource, namespace and name, and returns the status code
    to answer instead of carrying it out, or 0. A reason for being `read_only` is the answer to all of them, with 403.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        pods_run: bool = False,
        collects_garbage: bool = True,
        established_after_seconds: float = 0.05,
        bookmark_seconds: float = 60.0,
        history: int = 20_000,
        denials: Sequence[Denial] = (),
        clock: Clock | None = None,
        refuses: Refuses | None = None,
        names: Collection[str] = (),
        read_only: str = "",
    ) -> None:
        self._host, self._port = host, port
        self._collects_garbage = collects_garbage
        self._cluster = Cluster(
            history=history,
            established_after=established_after_seconds,
            pods_run=pods_run,
            denials=denials,
            clock=clock,
        )
        self._server = Server(
            self._cluster, bookmark_seconds=bookmark_seconds, refuses=refuses, names=(host, *names), read_only=read_only
        )
        self._runner: web.AppRunner | None = None
        self._collector: asyncio.Task[None] | None = None
        self.user = User(self._cluster, "user")

    async def __aenter__(self) -> Self:
        # Watches end only when their connection is closed, so nothing is gained by waiting for them.
        self._runner = web.AppRunner(
            self._server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise cannot_listen("the cluster", f"{self._host}:{self._port}", error) from error
        self._port = self._runner.addresses[0][1]
        if self._collects_garbage:
            self._collector = asyncio.create_task(self._cluster.garbage.run(), name="sandbox garbage collector")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_watches()
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.wait([self._collector])
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The address, such as `http://127.0.0.1:40001`."""
        return f"http://{self._host}:{self._port}"

    @property
    def requests(self) -> RequestLog:
        """The requests of the API so far."""
        return self._cluster.requests

    @property
    def store(self) -> Store:
        """The objects and their history; write through `user`, so that the API's rules hold."""
        return self._cluster.store

    @property
    def access(self) -> Access:
        """The deny list."""
        return self._cluster.access

    def serves(self, resource: str) -> bool:
        """Whether `plural` or `plural.group` can be asked for."""
        return any(served.name == resource for served in self._cluster.registry)

    def serve(self, version: str, plural: str, kind: str, *, namespaced: bool, group: str = "") -> None:
        """Serve a resource that the sandbox does not know, with any content."""
        registry = self._cluster.registry
        registry.add(anything(version, plural, kind, registry, namespaced=namespaced, group=group))

    def show(self, resource: str, body: Json, version: int) -> None:
        """Hold an object of `plural` or `plural.group` as it is, at a version, or at the next one if that is past."""
        store, served = self._cluster.store, self._cluster.registry.named(resource)
        store.revision = max(store.revision, version - 1)
        store.put(served.storage, {"apiVersion": served.api_version, "kind": served.kind, **body})

    def hide(self, resource: str, namespace: str, name: str) -> None:
        """Hold an object no more, whatever its finalizers are."""
        store, served = self._cluster.store, self._cluster.registry.named(resource)
        if (stored := store.get(served.storage, namespace, name)) is not None:
            store.remove(served.storage, stored)

    def changes(self, resource: str, *, since: int = 0) -> list[Change]:
        """The changes of the objects of `plural` or `plural.group` after a revision, oldest first."""
        found = self._cluster.registry.named(resource)
        return self._cluster.store.collection(found.storage).since(since)

    async def settle(self) -> None:
        """Wait until the cluster's own controllers have nothing left to do. Raises what ended them."""
        if self._collector is None:
            return
        idle = asyncio.ensure_future(self._cluster.garbage.idle())
        await asyncio.wait((idle, self._collector), return_when=asyncio.FIRST_COMPLETED)
        if self._collector.done():
            idle.cancel()
            self._collector.result()

    def acting_as(self, user_agent: str) -> User:
        """Direct calls that are logged under another user agent than `user`."""
        return User(self._cluster, user_agent)

    def kubeconfig(self, path: Path | str) -> Path:
        """Write a kubeconfig for this sandbox."""
        return write_kubeconfig(Path(path), self.url)

    def mutate(self, resource: str, change: Mutation) -> None:
        """Pass what is written of `plural` or `plural.group` through a function, as through a mutating webhook.

        It is given the whole object, with its defaults, also for a write of its status, and returns the one to store.
        """
        self._cluster.writes.mutations[resource] = change

    def compact(self) -> int:
        """Forget all history: older watches and continue tokens answer 410. Returns the revision compacted to."""
        self._cluster.store.compact()
        return self._cluster.store.revision

    def end_watches(self) -> None:
        """Close every open watch, as a restarting server does."""
        for watcher in tuple(self._cluster.watchers):
            watcher.end()


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig (JSON, which is YAML) for the URL; readable by its owner only."""
    name = "levelog-sandbox"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": USER, "user": {"token": TOKEN}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": USER, "namespace": "default"}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
    return path
