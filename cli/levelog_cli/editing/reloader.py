"""`--reload`: an application, or a process of it, that starts anew when its files change.

New code is loaded in a process of its own first. Only if that succeeds, the code before it is stopped: broken code
stops nothing, and is reported once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from levelog_base.errors import ConfigurationError, LevelogError
from levelog_cli.editing.forking import Child, Family, preload
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.editing.watchedfiles import code_files
from levelog_cli.loading import LoadedApplication
from levelog_cli.logs import quieten
from levelog_cli.printing.lines import print_lines
from levelog_cli.printing.planned import change_lines
from levelog_cli.running import execute
from levelog_cli.settings import Settings
from levelog_cli.wiring.expanding import load_for_cluster
from levelog_cli.wiring.rerun import planned
from levelog_cli.wiring.roles import EVERYTHING, Role, refuse_missing
from levelog_cli.wiring.stack import run_stack
from levelog_replay.planning import Course

log = logging.getLogger(__name__)

_PLAN_SECONDS: Final = 20.0
"""The code before it runs for so long while what changes is found out; half a second does on an idle machine."""
_PATIENCE_SECONDS: Final = 5.0
"""After so long it is said what is waited for."""
_LOADING: Final = ("levelog.compat.kopf", "levelog_cli.loading", "levelog_cli.wiring.expanding")
"""Loggers of what loading says: the process that tries code is silent, as the one that runs it says the same."""
Prepare = Callable[[], Awaitable[bool]]
"""Makes a cluster fit for code that is loaded, or raises what is wrong with it; tells if it has other definitions."""


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
        self._code = code_files(files)
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
        received, sent = Pipe(duplex=False)
        with received, sent:
            trial = self._family.fork("trial", lambda: self._try(sent))
            while trial.is_alive():
                self._family.wait(trial)
                if self._family.is_ending or self._code.changed():  # code that is loaded may not come to an end
                    trial.stop()
                    return False
            is_redefined = received.recv() if received.poll() else None
        if is_redefined is None:
            what = "the code before it runs on" if self._running else "waits for a change"
            log.warning("%s", what)
            self._notes.put("code", [f"the code is broken: {what}"])
            return False
        self._notes.put("code", [])
        self.is_redefined = is_redefined
        if self._running is not None:
            log.info("the new code takes over")
            self._running.stop()
        if not self._family.is_ending:
            self._running = self._family.fork("application", self._run)
        self._is_compared = self._roles == EVERYTHING
        return True

    async def _try(self, telling: Connection) -> None:
        """Load the code, tell if other definitions came with it, and print what it changes; raises if it is broken."""
        quieten(*_LOADING, below=logging.ERROR)
        application = await load_for_cluster(self._settings, self._files, self._roles)
        telling.send(self._prepare is not None and await self._prepare())
        if self._is_compared:
            await _print_changes(self._settings, application)

    async def _run(self) -> None:
        application = await load_for_cluster(self._settings, self._files, self._roles)
        await run_stack(self._settings, application, self._roles)


async def _print_changes(settings: Settings, application: LoadedApplication) -> None:
    """Print what code would change of what is stored, or why that is not known."""
    course = Course()
    telling = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, _tell_of, course)
    try:
        async with asyncio.timeout(_PLAN_SECONDS):
            found = await planned(settings, application, allows_network=False, course=course)
    except TimeoutError:
        log.warning(
            "what this changes takes more than %g s to find out, waiting for %s: `levelog plan` goes on",
            _PLAN_SECONDS,
            course.awaited,
        )
    except (ConfigurationError, LevelogError) as error:
        log.warning("what this changes is not known: %s", error)
    else:
        if found.is_same:
            log.info("this changes no level and no write")
        else:
            print_lines(change_lines(found))
    finally:
        telling.cancel()


def _tell_of(course: Course) -> None:
    log.info(
        "still finding out what this changes, by deciding on all levels in a copy: waits for %s; the code before it "
        "runs meanwhile",
        course.awaited,
    )
