"""Everything that the nemesis attacks: three nats-servers, a PostgreSQL pair, a cluster, processes, and edits."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from levelog_base.wire.objects import Cluster
from levelog_base.wire.subjects import stream_name, stream_subjects
from levelog_sandbox import Sandbox, StatusError
from rigs.assembled import Assembled, cancel
from rigs.levelog import Levelog
from rigs.natscluster import NatsCluster
from rigs.nemesis.notices import CALLS, NOTICES_FILE, notice
from rigs.nemesis.supervised import Supervised
from rigs.postgrespair import PostgresPair

NAMES: Final = ("spring", "summer", "autumn", "winter")
EDIT_SECONDS: Final = 0.5
_REVISIONS: Final = 500_000


class Site(Assembled):
    """Runs while the context is open; `edit` goes on until `is_edited` is cleared.

    `wanted` has edition and copies of each Notice. Editions only grow, over all Notices and their incarnations.
    `damaged` are NATS servers whose store is.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.nats = NatsCluster()
        self.pair = PostgresPair()
        self.sandbox = Sandbox(history=_REVISIONS)
        self.calls = folder / "calls"
        self.calls.touch()
        self.wanted: dict[str, tuple[int, int]] = {}
        self.is_edited = asyncio.Event()
        self.damaged: set[str] = set()
        self.cluster = Cluster("")
        self.stream, self.subjects = "", ""
        self._edition = 0
        self._edits = random.Random(seed)
        self._levelog = Levelog(folder)
        self.processes = Supervised(self._levelog, NOTICES_FILE)

    async def _open(self, stack: AsyncExitStack) -> None:
        await asyncio.gather(*(stack.enter_async_context(each) for each in (self.nats, self.pair, self.sandbox)))
        await self.nats.joined()
        await self._migrate()
        self.put_all()
        await stack.enter_async_context(self.processes)
        editing = asyncio.create_task(self._edit(), name="edits")
        stack.push_async_callback(cancel, editing)

    async def _migrate(self) -> None:
        self.sandbox.serve("v1", "notices", "Notice", namespaced=True, group="example.com")
        self.cluster = Cluster(self.sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
        self.stream, self.subjects = stream_name(self.cluster), stream_subjects(self.cluster)
        self._levelog.env |= {
            "KUBECONFIG": str(self.sandbox.kubeconfig(self._levelog.folder / "kubeconfig")),
            "LEVELOG_NATS_URL": self.nats.url,
            "LEVELOG_DATABASE_URL": self.pair.url,
            CALLS: str(self.calls),
        }
        ended = await self._levelog.ends("migrate")
        assert ended.status == 0, ended

    def put_all(self) -> None:
        """Edit each Notice once."""
        for name in NAMES:
            self._put(name)

    async def _edit(self) -> None:
        while True:
            await self.is_edited.wait()
            name, dice = self._edits.choice(NAMES), self._edits.random()
            if dice < 0.1:
                self._remove(name)
            elif dice < 0.2:
                with suppress(StatusError):  # it may be away already
                    self.sandbox.user.delete("configmaps", f"{name}-0")
            else:
                self._put(name)
            await asyncio.sleep(EDIT_SECONDS)

    def _put(self, name: str) -> None:
        self._edition += 1
        self.wanted[name] = self._edition, self._edits.randint(1, 3)
        self.sandbox.user.apply(notice(name, *self.wanted[name]))

    def _remove(self, name: str) -> None:
        if self.wanted.pop(name, None) is not None:
            self.sandbox.user.delete("notices.example.com", name)
