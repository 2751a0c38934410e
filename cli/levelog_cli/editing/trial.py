"""Code that is about to run: whether it can be loaded, from which files, and what it changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError, LevelogError
from levelog_cli.loading import LoadedApplication
from levelog_cli.printing.lines import print_lines
from levelog_cli.printing.planned import change_lines
from levelog_cli.settings import Settings
from levelog_cli.wiring.expanding import load_for_cluster
from levelog_cli.wiring.rerun import planned
from levelog_cli.wiring.roles import Role
from levelog_replay.planning import Course

log = logging.getLogger(__name__)

_PLAN_SECONDS: Final = 20.0
"""The code before it runs for so long while what changes is found out; half a second does on an idle machine."""
_PATIENCE_SECONDS: Final = 5.0
"""After so long it is said what is waited for."""


class TrialResult(Struct, frozen=True):
    """The outcome of loading code."""

    is_broken: bool
    is_redefined: bool = False
    """Whether the code's definitions are not those from before."""


Prepare = Callable[[], Awaitable[bool]]
"""Makes a cluster fit for code that is loaded, or raises what is wrong with it; returns `TrialResult.is_redefined`."""


async def try_code(
    settings: Settings,
    files: Sequence[Path],
    roles: frozenset[Role],
    telling: Connection,
    *,
    is_first: bool,
    prepare: Prepare | None,
) -> None:
    """Load the code, tell what became of that, and print what it changes of what is stored, unless it is the first.

    Raises what says that the code is broken.
    """
    try:
        application = await load_for_cluster(settings, files, roles, is_told=False)
        is_redefined = await prepare() if prepare is not None else False
    except BaseException:
        telling.send(TrialResult(is_broken=True))
        raise
    telling.send(TrialResult(is_broken=False, is_redefined=is_redefined))
    if not is_first:
        await print_changes(settings, application)


async def print_changes(settings: Settings, application: LoadedApplication) -> None:
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
