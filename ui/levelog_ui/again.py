"""The code that decides again on what the pages show: a file loaded when they start, never one from a browser."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

from msgspec.structs import replace

from levelog.errors import ConfigurationError
from levelog.secrets.redaction import Redactor
from levelog.wire.objects import Application
from levelog_processors.program import Program
from levelog_replay.bundles.reading import Bundle, refuse_other
from levelog_replay.comparing import Divergence
from levelog_replay.sources import LiveHistory, Selection
from levelog_replay.travel.edits import Edits
from levelog_replay.versions import Versions
from levelog_ui.past import Past

THEN_NOW = ("then", "now")


class AgainCode:
    """Answers one question at a time, since each reads the whole history."""

    def __init__(
        self, file: Path, application: Application, program: Program, *, redactor: Redactor, threads: int
    ) -> None:
        self.file = file
        self._application = application
        self._versions = Versions(
            programs=[program],
            names=THEN_NOW,
            redactor=redactor,
            threads=threads,
            allows_network=False,
            stops=None,
            following=lambda *_: nullcontext(),
        )
        self._turn = asyncio.Lock()

    async def changed(self, past: Past, edits: Edits) -> list[Divergence]:
        """Decisions that differ on a changed history, as `levelog what-if` finds them.

        Raises ConfigurationError for records that are not there, and for a history that does not fit the code.
        """
        history = await self._history(past)
        twice = replace(self._versions, programs=[*self._versions.programs] * 2)
        async with self._turn:
            return [each async for each in twice.differing(history, edits)]

    async def repeated(self, past: Past, ordinal: int) -> Divergence | str | None:
        """Make a decision once more as `levelog replay` does; returns how it differs, or why it cannot be made.

        None: it comes out the same. Raises ConfigurationError for a history that does not fit the code.
        """
        history = await self._history(past)
        async with self._turn:
            report = await self._versions.compare(history, Selection(ordinal=ordinal), is_in_order=False, show=None)
        if not report.comparison.views:
            raise ConfigurationError(f"the history does not hold decision {ordinal} any more")
        return report.comparison.first or next(iter(report.comparison.obstacles), None)

    async def _history(self, past: Past) -> LiveHistory | Bundle:
        history = await past.history(self._application)
        [program] = self._versions.programs
        if isinstance(history, Bundle):
            refuse_other(history, self._application, program)
        self._versions.redactor.refuse_history(past.source.name, history.redaction)
        return history
