"""The past as a Kubernetes API: State at a record, served by the sandbox, read-only."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from levelog_base.counting import counted
from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import LoggedRecord
from levelog_cli.printing.lines import print_line
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import opened_source
from levelog_history.reach import Moment, refuse_beyond
from levelog_processors.program import Program
from levelog_replay.tape import Rebuilt
from levelog_sandbox import Sandbox
from levelog_store.rows import Origin, StoredObject

_LONGEST_SECONDS: Final = 10.0
"""That nothing happens while it is played."""


async def serve_past(settings: Settings, bundle: Path | None, *, at: str, speed: float, port: int) -> None:
    """Serve the objects of a moment until cancelled, and go on from there if there is a speed.

    Raises ConfigurationError for history that is not there, moments out of reach, and a port that is taken.
    """
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_source(settings, bundle))
        moment = Moment.parse(at, datetime.now(UTC)) if at else Moment(sequence=(await source.ends())[2])
        await refuse_beyond(source, moment)
        history = await source.recorded()
        past = PastCluster(history.origin, port=port, of=f"{source.name} at {moment}")
        records = await stack.enter_async_context(aclosing(history.records()))
        first = await past.fold_up_to(records, moment)
        await stack.enter_async_context(past.sandbox)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-past-")))
        print_line(
            f"{source.name} at {moment}: {counted(len(past.rebuilt.state.objects), 'object')}, at {past.sandbox.url}",
            f"export KUBECONFIG={past.sandbox.kubeconfig(folder / 'kubeconfig')}",
        )
        sys.stdout.flush()
        if speed and first is not None:
            await past.play(first, records, speed)
            print_line(f"played up to the end of {source.name}, sequence {history.last}")
            sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


class PastCluster:
    """A sandbox that shows what State holds."""

    def __init__(self, origin: Origin, *, port: int, of: str) -> None:
        """`of`: what it shows, for those who want to write to it."""
        self.rebuilt = Rebuilt(Program(()), origin)
        self.sandbox = Sandbox(
            port=port,
            collects_garbage=False,
            read_only=f"this is {of}, and nobody changes the past",
        )
        self._shown: dict[str, StoredObject] = {}
        self._namespaces = {each["metadata"]["name"] for each in self.sandbox.user.list("namespaces")}

    async def fold_up_to(self, records: AsyncIterator[LoggedRecord], moment: Moment) -> LoggedRecord | None:
        """Fold what had happened by a moment, and show it; returns the record that comes next."""
        batch: list[LoggedRecord] = []
        following: LoggedRecord | None = None
        async for logged in records:
            if moment.precedes(logged):
                following = logged
                break
            batch.append(logged)
            if len(batch) == 1000:
                self.rebuilt.fold(batch)
                batch = []
        self.rebuilt.fold(batch)
        self.rebuilt.state.mark_written()
        self._show(sorted(self.rebuilt.state.objects.values(), key=lambda row: row.version))
        return following

    async def play(self, logged: LoggedRecord, records: AsyncIterator[LoggedRecord], speed: float) -> None:
        """Go on, record by record, so many times as fast as it was."""
        last = logged.record.time
        following: LoggedRecord | None = logged
        while following is not None:
            pause = (following.record.time - last).total_seconds() / speed
            last = max(last, following.record.time)
            await asyncio.sleep(min(max(pause, 0), _LONGEST_SECONDS))
            self.rebuilt.fold([following])
            changed = dict(self.rebuilt.state.unwritten.objects)
            self.rebuilt.state.mark_written()
            for name, row in changed.items():
                if row is None and (gone := self._shown.pop(name, None)) is not None:
                    self.sandbox.hide(gone.resource, gone.namespace, gone.name)
            self._show(row for row in changed.values() if row is not None)
            following = await anext(records, None)

    def _show(self, rows: Iterable[StoredObject]) -> None:
        for row in rows:
            known = self._shown.get(row.object)
            if known is not None and (known.uid, known.version) == (row.uid, row.version):
                continue
            body: dict[str, Any] = msgspec.json.decode(row.body)
            if not self.sandbox.serves(row.resource):
                self._serve(row, body)
            if row.namespace and row.namespace not in self._namespaces:
                self._namespaces.add(row.namespace)
                self.sandbox.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": row.namespace}})
            if row.resource == "namespaces":
                self._namespaces.add(row.name)
            self.sandbox.show(row.resource, body, row.version)
            self._shown[row.object] = row

    def _serve(self, row: StoredObject, body: dict[str, Any]) -> None:
        """Serve a resource that only the log knows, by what its objects say of it."""
        resource = GroupResource.parse(row.resource)
        recorded = self.rebuilt.state.api_versions.get((row.partition, row.resource), "v1")
        version = str(body.get("apiVersion", recorded)).rpartition("/")[2]
        kind = body.get("kind") or resource.resource.removesuffix("s").capitalize()  # an item of a list has none
        self.sandbox.serve(version, resource.resource, kind, namespaced=bool(row.namespace), group=resource.group)
