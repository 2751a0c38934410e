"""The command `levelog`, or a Python module, in a process that is forked from one that has loaded levelog already.

Loading takes a second of processor time, the fork a hundredth. pytest and the sandbox are loaded, too. Limits: what
Python or a module reads from the environment when it starts or is loaded is that of the tests; `ps` shows another name.
"""

import asyncio
import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

PROGRAM: Final = Path(sys.executable).parent / "levelog"
LOADED: Final = ("PYTHON", "LC_", "LANG")
"""How variables begin that are read before a command is."""

_LIBRARIES: Final = (
    "alembic.command",
    "asyncpg",
    "levelog.compat.kopf",
    "levelog.testing",
    "levelog_ingest.ingest",
    "levelog_migrations.applying",
    "levelog_store.connect.hosts",
    "pytest",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "uvloop",
)
"""Loaded by their users when they are used first, or by programs that are not the command."""
_NUMBER: Final = struct.Struct("i")
_MESSAGE_BYTES: Final = 200_000
_PR_SET_PDEATHSIG: Final = 1


class Preloaded:
    """A process, killed when the one that started it ends; methods are named as in subprocess.Popen."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], folder: Path, files: Sequence[int]) -> None:
        """`argv` is `levelog …`, or `python -m MODULE …` with or without -B.

        `files` are the descriptors of stdin, stdout and stderr; if stdin is a terminal, it is the one of the process.
        """
        self._told, telling = os.pipe()
        self.returncode: int | None = None
        try:
            request = {"argv": list(argv), "env": dict(env), "folder": str(folder)}
            socket.send_fds(_source(), [json.dumps(request).encode()], [*files, telling])
        finally:
            os.close(telling)
        self.pid = self._read()

    def poll(self) -> int | None:
        """The status, once it has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Block until it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    async def ended(self) -> int:
        """Wait until it has ended."""
        loop, has_ended = asyncio.get_running_loop(), asyncio.Event()
        if self.returncode is None:
            loop.add_reader(self._told, has_ended.set)
            try:
                await has_ended.wait()
            finally:
                loop.remove_reader(self._told)
        return self.wait()

    def send_signal(self, wish: signal.Signals) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, wish)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._read()
        os.close(self._told)

    def _read(self) -> int:
        told = os.read(self._told, _NUMBER.size)
        if not told:
            raise RuntimeError("the process that commands are forked from has ended")
        (number,) = _NUMBER.unpack(told)
        return int(number)


_sources: list[socket.socket] = []


def _source() -> socket.socket:
    """Where to ask for a fork: a process that lives as long as this one."""
    if not _sources:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        _sources.append(ours)
        atexit.register(_end_source, ours, process)
    return _sources[0]


def _end_source(ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    ours.close()
    process.wait()


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request, and report who ends; returns in the forked processes alone, with what was asked."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            _report(reports)
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 4)
            if not message:
                os._exit(0)  # what was forked dies with its parent
            *files, report = files
            pid = os.fork()
            if not pid:
                _take_place(files)
                request: dict[str, Any] = json.loads(message)
                return request
            for file in files:
                os.close(file)
            reports[pid] = report
            _tell(report, pid)


def _report(reports: dict[int, int]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        report = reports.pop(pid)
        _tell(report, os.waitstatus_to_exitcode(status))
        os.close(report)


def _tell(report: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(report, _NUMBER.pack(number))


def _take_place(files: Sequence[int]) -> None:
    """Be a process of its own, with these as stdin, stdout and stderr."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(len(files), 1024)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    atexit._clear()  # pyright: ignore[reportPrivateUsage]  # what is to be done is that of the process forked from


def _run(request: Mapping[str, Any]) -> NoReturn:
    """Do what Python would, and end as it would, but for taking it all apart."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    status: Any = 0
    try:
        _main(request["argv"])
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as Python does with what nobody catches
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def _main(argv: Sequence[str]) -> None:
    match argv:
        case [program, "-B", *rest]:
            sys.dont_write_bytecode = True
            _main([program, *rest])
        case [_, "-m", module, *arguments]:
            sys.path[0:1] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case _:
            from levelog_cli.start import main

            sys.argv = list(argv)
            main()


def _load() -> None:
    import _pytest.config
    import typer.main

    import levelog_cli.main

    modules = [module.name for module in pkgutil.walk_packages(levelog_cli.__path__, "levelog_cli.")]
    plugins = [f"_pytest.{name}" for name in _pytest.config.default_plugins]
    for name in (*_LIBRARIES, *modules, *plugins):
        importlib.import_module(name)
    command: Any = typer.main.get_command(levelog_cli.main.app)  # which typer makes anew in each process otherwise
    levelog_cli.main.app = command
    with suppress(SystemExit), redirect_stdout(io.StringIO()):
        command(["levels", "--help"])  # typer loads what it parses with when it does
    for parameter in _parameters(command):
        parameter.get_runtime_param()  # which typer makes and keeps when it parses it first
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        asyncio.run(_warm_up(f"sqlite:///{folder}/levelog.db"))
    assert threading.active_count() == 1, "a thread would not be in the forks"
    gc.freeze()


def _parameters(command: Any) -> Iterator[Any]:
    """Those of a command and of the ones below it."""
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from _parameters(below)


async def _warm_up(url: str) -> None:
    """Read levelog's own functions for an operator's fingerprints, and compile statements: a third of most commands."""
    from levelog_base.wire.objects import Application, Cluster
    from levelog_cli.loading import load_operators
    from levelog_cli.settings import Settings
    from levelog_cli.wiring.lookback import show_levels
    from levelog_migrations import upgrade
    from levelog_store.connect.database import Database
    from levelog_store.look.levelpages import ALL
    from levelog_store.owners.scopes import open_scope

    load_operators([Path(__file__).with_name("depot.py")])
    await upgrade(url)
    async with await Database.open(url) as database:
        await open_scope(
            database,
            cluster=Cluster("a"),
            application=Application("a"),
            partitions=1,
            stream_created="",
            fingerprint="",
        )
    await show_levels(Settings(database_url=url), ALL, as_json=False)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from rigs.run.slowed import slow_down

    sys.path[0] = str(PROGRAM.parent)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _load()
        slow_down()
        asked = _serve(control)
        control.detach()
    _run(asked)
