"""`levelog run`, and its parts as processes of their own: `ingest`, `process`, `actuate`."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from typer.core import TyperCommand

from levelog_cli.commands.declaring import argument, switch, taking
from levelog_cli.packages import file_of
from levelog_cli.replacedlibraries import REPLACED
from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings
from levelog_cli.wiring.roles import EVERYTHING, Role, refuse_missing

Files = Annotated[
    list[Path],
    argument("Python files that define operators, folders of such files, or -m package.module.", "FILE"),
]
Reload = Annotated[bool, switch("Restart when a file changes; `run` first prints what that changes.", "--reload")]
Pages = Annotated[
    bool, switch("Serve pages that show what happens, in a process of their own: see `levelog ui`.", "--ui")
]
_CLUSTER: Final = ("kubeconfig", "context")
_WRITES: Final = ("requests", "group_requests", "max_backoff", "dry_run")
_PROCESSING: Final = ("threads", "check_purity", "events_from", "shared_database")
_REDACTION: Final = ("redaction_key_file", "redact", "redaction")
_SHARED: Final = (*NATS, "database_url", "application", "cluster")


class FilesCommand(TyperCommand):
    """A command that takes operator files, each also by the name of its module: `-m package.module`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, with the file of a module in place of its name."""
        given, found = iter(args), list[str]()
        for each in given:
            option, _, module = each.partition("=")
            if option not in ("-m", "--module"):
                found.append(each)
                continue
            module = module or next(given, "")
            file = file_of(module)
            if file is None:
                ctx.fail(f"{option} {module}: there is no such module here, and none is installed")
            found.append(str(file))
        return super().parse_args(ctx, found)


class RunCommand(FilesCommand):
    """`levelog run`, which knows what is here in place of an option of a library that a layer stands in for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; an option of such a library ends the command with what to write instead."""
        for name in (each.partition("=")[0] for each in args):
            for library, replaced in REPLACED.items():
                if name in replaced.options:
                    ctx.fail(f"No such option: {name} (of {library} run; here {replaced.options[name]})")
        return super().parse_args(ctx, args)


@taking(*_SHARED, *_CLUSTER, "namespace", "data_dir", "log_replicas", *_REDACTION, *_PROCESSING, *_WRITES, "listen")
def run(settings: Settings, files: Files, *, reload: Reload = False, ui: Pages = False) -> None:
    """Run operators: watch, decide and write, in one process. NATS and SQL are embedded unless URLs are given."""
    _start(settings, files, EVERYTHING, reload=reload, has_pages=ui)


@taking(*NATS, "application", "cluster", *_CLUSTER, "namespace", "log_replicas", *_REDACTION, "listen")
def ingest(settings: Settings, files: Files, *, reload: Reload = False) -> None:
    """Watch what the operators read, and record it in the log."""
    _start(settings, files, frozenset({Role.INGEST}), reload=reload)


@taking(*_SHARED, *_REDACTION, *_PROCESSING, "max_backoff", "dry_run", "listen")
def process(settings: Settings, files: Files, *, reload: Reload = False) -> None:
    """Fold the log into SQL and decide. Any number may run, and share the work.

    Start-up and clean-up hooks run in each of them.
    """
    _start(settings, files, frozenset({Role.PROCESS}), reload=reload)


@taking(*_SHARED, *_CLUSTER, "namespace", *_REDACTION, *_WRITES, "listen")
def actuate(settings: Settings, files: Files, *, reload: Reload = False) -> None:
    """Write what was decided to the Kubernetes API. Any number may run, and share the work."""
    _start(settings, files, frozenset({Role.ACTUATE}), reload=reload)


def _start(
    settings: Settings, files: list[Path], roles: frozenset[Role], *, reload: bool, has_pages: bool = False
) -> None:
    if reload:
        from levelog_cli.editing.reloader import run_reloading

        run_reloading(settings, files, roles, has_pages=has_pages)
        return
    with _pages(settings) if has_pages else nullcontext():
        execute(settings, lambda: _stack(settings, files, roles))


@contextmanager
def _pages(settings: Settings) -> Generator[None]:
    """Serve pages while the context is open."""
    from levelog_cli.editing.forking import Family
    from levelog_cli.wiring.pages import fork_pages

    family = Family(settings)
    fork_pages(family, settings)
    try:
        yield
    finally:
        family.end()


async def _stack(settings: Settings, files: list[Path], roles: frozenset[Role]) -> None:
    from levelog_cli.wiring.expanding import load_for_cluster

    application = await load_for_cluster(settings, files, roles)
    refuse_missing(settings, roles)
    if settings.events_from:
        from levelog_history.reach import Moment

        Moment.parse(settings.events_from, datetime.now(UTC))
    # What is wrong up to here is said before the clients of the servers are loaded, which takes a second.
    from levelog_cli.wiring.stack import run_stack

    await run_stack(settings, application, roles)
