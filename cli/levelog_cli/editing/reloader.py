"""`--reload`: an application, or a process of it, that starts anew when its files change.

New code is loaded in a process of its own first. Only if that succeeds, the code before it is stopped: broken code
stops nothing, and is reported once.
"""

import logging
from collections.abc import Coroutine, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from levelog_cli.editing.codefiles import CodeFiles
from levelog_cli.editing.forking import Child, Family, preload
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.editing.trial import Prepare, TrialResult, try_code
from levelog_cli.running import execute
from levelog_cli.settings import Settings
from levelog_cli.wiring.expanding import load_for_cluster
from levelog_cli.wiring.roles import EVERYTHING, Role, refuse_missing
from levelog_cli.wiring.stack import run_stack

log = logging.getLogger(__name__)


def run_reloading(
    settings: Settings, files: Sequence[Path], roles: frozenset[Role] = EVERYTHING, *, has_pages: bool = False
) -> None:
    """Run the application, or a part of it, until a signal ends the command, which then ends with status 0."""

    async def check() -> None:
        refuse_missing(settings, roles)

    execute(settings, check)
    preload()
    family = Family(settings)
    with family.ending_by_signals():
        if has_pages:
            from levelog_cli.wiring.pages import fork_pages  # noqa: PLC0415 - it loads what reads bundles

            fork_pages(family, settings)
        reloader = Reloader(settings, files, family, roles)
        while not family.is_ending:
            reloader.look()
            family.wait(*reloader.waited_for)


class Reloader:
    """Runs the newest code that can be loaded; `look` is called again and again."""

    def __init__(
        self,
        settings: Settings,
        files: Sequence[Path],
        family: Family,
        roles: frozenset[Role] = EVERYTHING,
        *,
        prepare: Prepare | None = None,
        notes: BoardNotes | None = None,
    ) -> None:
        self._roles = roles
        self._prepare = prepare
        self._notes = notes or BoardNotes()
        self._settings = settings
        self._files = files
        self._family = family
        self._code = CodeFiles(files)
        self._running: Child | None = None
        self._is_tried = False
        self.is_redefined = False
        """Whether the definitions of the code loaded last are not those from before."""
        self._is_compared = False  # at first, and by a part: the other parts would run new code meanwhile

    @property
    def waited_for(self) -> list[Child]:
        """What is worth a look when it ends."""
        return [self._running] if self._running is not None else []

    def look(self) -> bool:
        """Start or replace the application if there is other code, and tell if it has ended by itself.

        Returns whether other code runs now.
        """
        changed = self._code.changed()
        is_replaced = False
        if changed or not self._is_tried:
            if self._is_tried:
                log.info("changed: %s", ", ".join(file.name for file in changed))
            self._is_tried = True
            is_replaced = self._replace()
        if self._running is not None and not self._running.is_alive():
            log.error("ended with status %s: is started again when a file changes", self._running.exitcode)
            self._running = None
        return is_replaced

    def _replace(self) -> bool:
        self._code.mark()
        tried = self._try()
        if tried is None:
            return False
        if tried.is_broken:
            what = "the code before it runs on" if self._running else "waits for a change"
            log.warning("%s", what)
            self._notes.put("code", [f"the code is broken: {what}"])
            return False
        self._notes.put("code", [])
        self.is_redefined = tried.is_redefined
        if self._running is not None:
            log.info("the new code takes over")
            self._running.stop()
        if not self._family.is_ending:
            self._running = self._family.fork("application", self._run)
        self._is_compared = self._roles == EVERYTHING
        return True

    def _try(self) -> TrialResult | None:
        """Load the code in a process of its own; None if the command is to end, or the files change meanwhile."""
        received, sent = Pipe(duplex=False)
        with received, sent:
            trial = self._family.fork("trial", lambda: self._try_code(sent))
            while trial.is_alive():
                self._family.wait(trial)
                if self._family.is_ending or self._code.changed():  # code that is loaded may not come to an end
                    trial.stop()
                    return None
            result = received.recv() if received.poll() else None
        # Code may end its process as it is loaded, without a word.
        return result if isinstance(result, TrialResult) else TrialResult(is_broken=True)

    def _try_code(self, telling: Connection) -> Coroutine[Any, Any, None]:
        is_first = not self._is_compared
        return try_code(self._settings, self._files, self._roles, telling, is_first=is_first, prepare=self._prepare)

    async def _run(self) -> None:
        application = await load_for_cluster(self._settings, self._files, self._roles)
        await run_stack(self._settings, application, self._roles)
