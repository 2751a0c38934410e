"""Keeps users' functions from I/O, by one audit hook, which the first use of one of these adds to the process.

`computing`: a function that only computes does no I/O. `offline`: what a replay calls does not reach the network.
`harmless`: nor does it change anything outside the process.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from levelog.calls.faults import HandlerFault

_NETWORK: Final = dict.fromkeys(
    (
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "urllib.Request",
    ),
    "the network",
)
"""Audit events (docs.python.org/3/library/audit_events.html), with what a message calls their kind."""
_PROCESSES: Final = dict.fromkeys(
    (
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "subprocess.Popen",
    ),
    "processes",
)
_FILES: Final = dict.fromkeys(
    (
        "open",
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
    ),
    "writing to files",
)
_OTHERS: Final = dict.fromkeys(
    (
        "_thread.start_joinable_thread",
        "_thread.start_new_thread",
        "os.listdir",
        "os.scandir",
        "socket.__new__",
        "socket.gethostname",
        "time.sleep",
    ),
    "other I/O",
)
_OFFLINE: Final = {**_NETWORK, "subprocess.Popen": "processes"}
_HARMLESS: Final = {**_NETWORK, **_PROCESSES, **_FILES}
_ALL: Final = {**_HARMLESS, **_OTHERS}

_OF_SOCKETS: Final = ("socket.__new__", "socket.connect", "socket.sendmsg", "socket.sendto")
"""Events whose first argument is the socket."""
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
"""Modules whose files are neither input nor output: imported code, lines of tracebacks, log files, time zones."""


class Refusals:
    """What calls were refused, kept even if they swallowed it."""

    def __init__(self, kinds: Mapping[str, str] = {}, why: str = "", caller: str = "") -> None:
        """`kinds`: of the events that are refused. `caller`: the module below which the calls are, if there is one."""
        self._kinds = kinds
        self._why = why
        self._caller = caller
        self.kind = ""
        """Kind of the first refused act; empty: nothing was refused."""
        self.what = ""
        """The first, with its arguments."""

    def require_none(self) -> None:
        """Raises HandlerFault if anything was refused."""
        if self.kind:
            raise self._fault(self.kind, self.what)

    def refuse(self, event: str, args: tuple[Any, ...], frame: FrameType) -> None:
        """Raises HandlerFault if the event is one of those that are refused."""
        if event not in self._kinds or self._is_allowed(event, args, frame):
            return
        shown = args[1:2] if event in _OF_SOCKETS else args[:1]
        kind, what = self._kinds[event], f"{event} {', '.join(map(repr, shown))}".rstrip()
        if not self.kind:
            self.kind, self.what = kind, what
        raise self._fault(kind, what)

    def _fault(self, kind: str, what: str) -> HandlerFault:
        return HandlerFault(f"{what}: {self._why.format(kind)}")

    def _is_allowed(self, event: str, args: tuple[Any, ...], frame: FrameType | None) -> bool:
        """Tell whether it is neither input nor output of the function."""
        only_computes = self._kinds is _ALL
        if event == "open":
            path, mode, flags = args
            is_writing = any(each in str(mode or "") for each in "wax+") or bool((flags or 0) & _WRITING)
            if not only_computes and (not is_writing or isinstance(path, int) or path == os.devnull):
                return True
            if not is_writing and "/zoneinfo/" in str(path):  # read from C, without a frame of its own
                return True
        elif not only_computes and event not in _FILES:
            return False
        while frame is not None and (name := frame.f_globals.get("__name__")) != self._caller:
            if name in _READERS:
                return True
            frame = frame.f_back
        return False


_refusals: ContextVar[Refusals | None] = ContextVar("levelog_refusals", default=None)
_is_installed = False
_is_purity_checked = False


def check_purity() -> None:
    """Let `computing` refuse I/O from here on, in the whole process."""
    global _is_purity_checked  # noqa: PLW0603 - a hook is of the process, and so is this
    _is_purity_checked = True


def computing(caller: str) -> AbstractContextManager[Refusals]:
    """Refuse I/O in the context, if this process checks purity; `caller` is the module that calls the function."""
    if not _is_purity_checked:
        return _UNCHECKED
    return _refusing(Refusals(_ALL, _COMPUTES, caller))


def offline() -> AbstractContextManager[Refusals]:
    """Refuse network access in the context, in its tasks too: HandlerFault is raised there.

    Limits: it does not see connections that an event loop makes in C, as uvloop's `create_connection` does, nor threads
    that the function starts without the context.
    """
    return _refusing(Refusals(_OFFLINE, _BY_REPLAY))


def harmless() -> AbstractContextManager[Refusals]:
    """Refuse processes and file changes as well, except writes of imported modules and log files.

    The limits are those of `offline`.
    """
    return _refusing(Refusals(_HARMLESS, _BY_REPLAY))


def unchecked() -> AbstractContextManager[Refusals]:
    """Allow I/O in the context, whatever runs in it."""
    return _refusing(Refusals())


_COMPUTES: Final = (
    "it computes from what it is given alone; read files when the module is loaded, and do I/O in a reconcile function"
)
_BY_REPLAY: Final = "replay refuses {}, unless given --allow-network"
_UNCHECKED: Final = nullcontext(Refusals())


@contextmanager
def _refusing(refusals: Refusals) -> Generator[Refusals]:
    global _is_installed  # noqa: PLW0603 - added once for the process
    if not _is_installed:  # it cannot be removed, and each event of the process passes it
        _is_installed = True
        sys.addaudithook(_refuse)
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def _refuse(
    event: str,
    args: tuple[Any, ...],
    kinds: Mapping[str, str] = _ALL,
    current: ContextVar[Refusals | None] = _refusals,
) -> None:
    """Has what it needs as defaults: events still come at the end of a process, when a module's names are None."""
    if event in kinds and (refusals := current.get()) is not None:
        refusals.refuse(event, args, sys._getframe(1))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the one way to the frame
