"""`levelog dev`: a cluster in memory, an application that starts anew when its files change, and its levels."""

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from levelog_cli.editing.board import print_changes, show_board
from levelog_cli.editing.forking import Child, Family, preload
from levelog_cli.editing.installing import define
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.editing.objectfiles import keep_applied
from levelog_cli.editing.reloader import Reloader
from levelog_cli.logs import quieten, set_up_logs
from levelog_cli.printing.lines import print_line
from levelog_cli.running import FAILED
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import LogFormat, LogLevel, Settings
from levelog_processors import tables
from levelog_sandbox import Sandbox
from levelog_sandbox.objects.journal import Journal

log = logging.getLogger(__name__)

_OUTPUTS: Final = (1, 2)
"""Descriptors of stdout and stderr."""


def develop(
    settings: Settings,
    files: Sequence[Path],
    *,
    objects: Sequence[Path],
    folder: Path,
    port: int,
    has_pages: bool = False,
) -> None:
    """Run all three, and pages if they are wanted, until a signal ends the command, or the cluster ends by itself."""
    set_up_logs(settings.log_format, settings.log_level)
    if settings.log_level is not LogLevel.DEBUG:  # the levels stand below the log, and a failed write has its own line
        quieten(tables.__name__)
    preload()
    kubeconfig = folder.absolute() / "kubeconfig"
    _have_one_cluster(kubeconfig)
    own = replace(settings, data_dir=folder, kubeconfig=str(kubeconfig), context="", check_purity=True)
    family, notes = Family(own), BoardNotes()

    name = ", ".join(file.name for file in files)
    with family.ending_by_signals(), _shown_levels(own, family, notes, name):
        cluster, url = _start_cluster(family, folder / "cluster", kubeconfig, port)
        if not url:
            return
        variables = {"KUBECONFIG": kubeconfig, "LEVELOG_DATA_DIR": folder.absolute()}
        exported = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
        print_line(f"cluster in memory: {url}", f"in other terminals: export {exported}")
        sys.stdout.flush()
        if has_pages:
            from levelog_cli.wiring.pages import fork_pages  # noqa: PLC0415 - it loads what reads bundles

            fork_pages(family, own)
        reloader = Reloader(own, files, family, prepare=lambda: define(own, files), notes=notes)
        applying: Child | None = None
        while not family.is_ending:
            if reloader.look() and objects and (applying is None or reloader.is_redefined):
                if applying is not None:
                    applying.stop()
                applying = family.fork("objects", lambda: keep_applied(own, objects, notes))
            family.wait(cluster, *reloader.waited_for)
            for part in (cluster, applying):
                _require(part, family)


def _have_one_cluster(kubeconfig: Path) -> None:
    """Let whatever the operator's own code asks for a cluster find this one, and no other of the user's."""
    os.environ["KUBECONFIG"] = str(kubeconfig)
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        os.environ.pop(name, None)


def _start_cluster(family: Family, folder: Path, kubeconfig: Path, port: int) -> tuple[Child, str]:
    """A cluster with its URL; the URL is empty if the command is to end. Ends the command if the cluster fails."""
    data = DataDir(folder)
    told, telling = Pipe(duplex=False)
    with told, telling:

        async def serve() -> None:
            with data.claim(instead="stop that one, or give this one another --folder"):
                sandbox = Sandbox(port=port, pods_run=True)
                with Journal(data.path / "objects", sandbox.store):
                    async with sandbox:
                        sandbox.kubeconfig(kubeconfig)
                        telling.send(sandbox.url)
                        await asyncio.get_running_loop().create_future()

        cluster = family.fork("cluster", serve)
        while not family.is_ending:
            family.wait(cluster, told)
            if told.poll():
                return cluster, str(told.recv())
            _require(cluster, family)
    return cluster, ""


def _require(part: Child | None, family: Family) -> None:
    """End the command as a part of it has ended, if nobody asked it to; one that failed has said why."""
    if part is not None and not part.is_alive() and not family.is_ending:
        if (part.exitcode or 0) <= 0:
            log.error("the process of the %s ended with status %s", part.name, part.exitcode)
        raise SystemExit(part.exitcode or FAILED)


@contextmanager
def _shown_levels(settings: Settings, family: Family, notes: BoardNotes, name: str) -> Generator[None]:
    """Show the levels while the context is open: a board on a terminal, which the output of all others goes above."""
    if not all(os.isatty(number) for number in _OUTPUTS) or settings.log_format is LogFormat.JSON:
        family.fork("levels", lambda: print_changes(settings))
        yield
        return
    lines, writing = os.pipe()
    noted, noting = Pipe(duplex=False)

    async def show() -> None:
        os.close(writing)
        noting.close()
        await show_board(settings, lines, noted, name)

    board = family.fork("levels", show)
    os.close(lines)
    noted.close()
    with ExitStack() as stack, noting:
        notes.show_by(noting)
        stack.callback(board.end)
        for number in _OUTPUTS:
            kept = os.dup(number)
            os.dup2(writing, number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
        os.close(writing)
        stack.callback(family.end, but=board)  # what the others say last is shown, too
        yield
