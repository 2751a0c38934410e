"""Keeps users' functions from I/O and other forbidden calls, by the process's one audit hook.

A pure function does no I/O: its thread has a `Guard`. Functions that a replay calls, and the tasks that they start, do
not reach the network: they run `offline`. Functions with side effects also change nothing else there: they run
`harmless`.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from threading import get_ident
from types import FrameType
from typing import Any, Final

from levelog.calls.faults import HandlerFault

_IO: Final[Mapping[str, str]] = {
    "_thread.start_joinable_thread": "started a thread",
    "_thread.start_new_thread": "started a thread",
    "open": "opened {0!r}",
    "os.exec": "started {0!r}",
    "os.fork": "forked",
    "os.forkpty": "forked",
    "os.listdir": "listed the directory {0!r}",
    "os.mkdir": "made the directory {0!r}",
    "os.posix_spawn": "started {0!r}",
    "os.remove": "removed {0!r}",
    "os.rename": "renamed {0!r}",
    "os.rmdir": "removed {0!r}",
    "os.scandir": "listed the directory {0!r}",
    "os.spawn": "started {1!r}",
    "os.system": "ran {0!r}",
    "socket.connect": "connected to {1!r}",
    "socket.getaddrinfo": "looked up the address of {0!r}",
    "socket.gethostbyname": "looked up the address of {0!r}",
    "sqlite3.connect": "opened the database {0!r}",
    "subprocess.Popen": "started {0!r}",
    "time.sleep": "slept",
    "urllib.Request": "asked for {0!r}",
}
"""Audit events (docs.python.org/3/library/audit_events.html) and how a message tells of them."""

_NETWORK: Final = frozenset(
    {
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
        "urllib.Request",
    }
)

_OF_SOCKETS: Final = ("socket.connect", "socket.sendmsg", "socket.sendto")
"""Events whose first argument is the socket, and whose second is the address."""

_PROCESSES: Final = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "subprocess.Popen",
    }
)
_FILES: Final = frozenset(
    {
        "os.chmod",
        "os.chown",
        "os.link",
        "os.mkdir",
        "os.remove",
        "os.removexattr",
        "os.rename",
        "os.rmdir",
        "os.setxattr",
        "os.symlink",
        "os.truncate",
        "os.utime",
        "sqlite3.connect",
    }
)
"""Events of files that are changed; `open` is one of them if it is to write."""
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_READERS: Final = frozenset(
    {
        "_frozen_importlib",
        "_frozen_importlib_external",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "linecache",
        "logging",
        "logging.handlers",
        "tokenize",
        "warnings",
        "zoneinfo",
        "zoneinfo._common",
        "zoneinfo._tzpath",
    }
)
"""Modules that read files which are no input: imported code, lines of tracebacks, log files, time zones."""


class Guard:
    """The forbidden calls of one function call; kept even if the function caught the refusal.

    `caller` is the module that calls the function: its own calls are not checked.
    """

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.offence: HandlerFault | None = None


class Refusals:
    """What calls were refused, kept even if they swallowed it; `is_harmless`: more than the network is."""

    def __init__(self, *, is_harmless: bool) -> None:
        self.is_harmless = is_harmless
        self.kind = ""
        """Kind of the first refused act: network, processes or files; empty: nothing was refused."""
        self.what = ""
        """The first, with its arguments."""


_guards: dict[int, Guard] = {}
"""The guard of each thread in which a function runs that only computes."""
_refusals: ContextVar[Refusals | None] = ContextVar("levelog_refusals", default=None)
_is_installed = False


def guard(of: Guard) -> None:
    """Refuse I/O in this thread from here on."""
    _install()
    _guards[get_ident()] = of


def unguard(of: Guard) -> None:
    """Allow I/O in this thread again, if this guard refuses it."""
    if _guards.get(get_ident()) is of:
        del _guards[get_ident()]


@contextmanager
def unguarded() -> Generator[None]:
    """Allow I/O in this thread, whatever runs in it."""
    held = _guards.pop(get_ident(), None)
    try:
        yield
    finally:
        if held is not None:
            _guards[get_ident()] = held


@contextmanager
def offline() -> Generator[Refusals]:
    """Refuse network access in the context, in its tasks too: HandlerFault is raised there.

    Limits: it does not see connections that an event loop makes in C, as uvloop's `create_connection` does, nor threads
    that the function starts without the context.
    """
    with _refusing(Refusals(is_harmless=False)) as refusals:
        yield refusals


@contextmanager
def harmless() -> Generator[Refusals]:
    """Refuse processes and file changes as well, except writes of imported modules and log files.

    The limits are those of `offline`.
    """
    with _refusing(Refusals(is_harmless=True)) as refusals:
        yield refusals


@contextmanager
def _refusing(refusals: Refusals) -> Generator[Refusals]:
    _install()
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def _install() -> None:
    """Add the hook at the first use; it cannot be removed, and each event of the process passes it."""
    global _is_installed  # noqa: PLW0603 - added once for the process
    if not _is_installed:
        _is_installed = True
        sys.addaudithook(_refuse)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if _guards and (event in _IO or event.startswith(("socket.", "subprocess."))):
        _refuse_io(event, args)
    if event in _NETWORK or event in _PROCESSES or event in _FILES or event == "open":
        _refuse_effect(event, args)


def _refuse_effect(event: str, args: tuple[Any, ...]) -> None:
    refusals = _refusals.get()
    if refusals is None:
        return
    if event in _PROCESSES and (refusals.is_harmless or event in _NETWORK):
        kind = "processes"
    elif event in _NETWORK:
        kind = "the network"
    elif refusals.is_harmless and (event in _FILES or _is_writing(args)):
        if _is_reading(sys._getframe(2), ""):  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as below
            return
        kind = "writing to files"
    else:
        return
    shown = args[1:2] if event in _OF_SOCKETS else args[:1]
    what = f"{event} {', '.join(map(repr, shown))}".rstrip()
    if not refusals.kind:
        refusals.kind, refusals.what = kind, what
    raise HandlerFault(f"{what}: replay refuses {kind}, unless given --allow-network")


def _is_writing(args: tuple[Any, ...]) -> bool:
    """Tell whether a file is opened that may be changed by it: by its name, not one that is open."""
    path, mode, flags = args
    if isinstance(path, int) or path == os.devnull:
        return False
    return any(each in str(mode or "") for each in "wax+") or bool((flags or 0) & _WRITING)


def _refuse_io(event: str, args: tuple[Any, ...]) -> None:
    found = _guards.get(get_ident())
    if found is None or _is_reading(sys._getframe(2), found.caller):  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the one way to the frame
        return
    if event == "open" and "/zoneinfo/" in str(args[0]):  # read from C, without a frame of its own
        return
    shown = (fspath(each) if isinstance(each, PathLike) else each for each in (*args, "", ""))
    what = _IO[event].format(*shown) if event in _IO else f"called {event}"
    found.offence = HandlerFault(
        f"{what}: it computes from what it is given alone; "
        "read files when the module is loaded, and do I/O in a reconcile function"
    )
    raise found.offence


def _is_reading(frame: FrameType | None, caller: str) -> bool:
    """Tell whether one of the modules that may read files is at work, below the function that is guarded."""
    while frame is not None and frame.f_globals.get("__name__") != caller:
        if frame.f_globals.get("__name__") in _READERS:
            return True
        frame = frame.f_back
    return False
