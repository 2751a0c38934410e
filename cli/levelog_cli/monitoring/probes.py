"""What `/healthz` and `/readyz` say: judged on the event loop, read by a thread that answers while the loop cannot."""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

from msgspec import Struct

from levelog.calls.faults import is_levelogs
from levelog_base.errors import LevelogError

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 0.5
"""How often the event loop says that it turns, and judges everything else."""
TOLD_SECONDS: Final = 2.0
"""The log names a function that has held up the loop for so long."""
BLOCKED_SECONDS: Final = 5.0
"""A loop that does not turn for so long is blocked; what it said before no longer counts."""
ASK_SECONDS: Final = 2.5
"""Between an answer of a server and the next question."""
ANSWER_SECONDS: Final = 4.0
"""A server that takes longer is away. With the question before, a paused server is told of within 7 s."""

_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of modules that are installed."""

Judge = Callable[[], str]
"""What is wrong with a part now, in a few words; empty: nothing."""


class ProbeAnswer(Struct, frozen=True):
    """The answer of a probe."""

    is_good: bool
    text: str
    """A line for each part, as kube-apiserver's own probes have it."""


class AskedServer:
    """Asks one server again and again, never twice at a time; a question is not given up, as its answer may come."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        """None: nothing is asked now."""
        self._error = "not asked yet"

    async def watch(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(ASK_SECONDS)

    async def ask(self) -> None:
        """Ask once, and keep what is wrong."""
        self._asked_at = time.monotonic()
        try:
            await self._ask()
        except LevelogError as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is what the probe says
            self._error = f"{type(error).__name__}: {error}"
        else:
            self._error = ""
        self._asked_at = None

    def judge(self) -> str:
        """Its failure now; empty if it works."""
        if self._asked_at is not None and (waits := time.monotonic() - self._asked_at) > ANSWER_SECONDS:
            return f"no answer for {waits:.0f} s"
        return self._error


class Probes:
    """The parts of a process, and what each says of itself; made on the thread of the event loop, which runs `beat`."""

    def __init__(self, parts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`parts` are those that the process is to have: it is not ready before each has a judge."""
        self._clock = clock
        self._judges: dict[str, Judge] = dict.fromkeys(parts, lambda: "has not begun")
        self._found: Mapping[str, str] = {name: judge() for name, judge in self._judges.items()}
        self._loop_thread = threading.get_ident()
        self._beat_at = clock()
        self._told: set[CodeType] = set()

    def watch(self, part: str, judge: Judge) -> None:
        """Ask `judge` of a part from now on; it is called on the event loop, and must not raise or wait."""
        self._judges[part] = judge

    async def beat(self) -> None:
        """Judge until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(BEAT_SECONDS)

    def look(self) -> None:
        """Judge all parts now."""
        self._found = {name: judge() for name, judge in self._judges.items()}
        self._beat_at = self._clock()

    @contextmanager
    def telling(self) -> Generator[None]:
        """Call `tell` again and again while the context is open, on a thread that goes on while the loop cannot."""
        ended = threading.Event()

        def tell() -> None:
            while not ended.wait(BEAT_SECONDS):
                self.tell()

        thread = threading.Thread(target=tell, name="levelog beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def tell(self) -> None:
        """Warn once of each function of a user's that holds up the loop: all else is slow then, and looks guilty."""
        seconds, frames = self._clock() - self._beat_at, self._frames()
        called = _users(frames)
        if seconds < TOLD_SECONDS or called is None or called.f_code in self._told:
            return
        self._told.add(called.f_code)
        log.warning(
            "the event loop stands still for %.0f s%s: nothing else goes on until the function returns or awaits",
            seconds,
            _where(frames[0], called),
        )

    def healthz(self) -> ProbeAnswer:
        """Whether the event loop turns. A restart mends nothing else."""
        return _answer("healthz", {"event loop": self._blocked()})

    def readyz(self) -> ProbeAnswer:
        """Whether every part can do its work now; of a loop that is blocked nothing else is known."""
        blocked = self._blocked()
        return _answer("readyz", {"event loop": blocked, **({} if blocked else self._found)})

    def _blocked(self) -> str:
        seconds = self._clock() - self._beat_at
        if seconds <= BLOCKED_SECONDS:
            return ""
        frames = self._frames()
        return f"blocked for {seconds:.0f} s{_where(frames[0], _users(frames) or frames[-1]) if frames else ''}"

    def _frames(self) -> list[FrameType]:
        """The calls that the loop's thread is in, innermost first, out to the one that levelog or the loop has made."""
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no other way to see them
        frame, found = frames.get(self._loop_thread), list[FrameType]()
        while frame is not None and not (found and (_is_calling(frame) or _is_calling(found[-1]))):
            found.append(frame)
            frame = frame.f_back
        return found


def _users(frames: Sequence[FrameType]) -> FrameType | None:
    """The outermost function of a user's; a library that levelog has called is slow, not at fault."""
    own = (each for each in reversed(frames) if not _is_calling(each))
    return next((each for each in own if not each.f_code.co_filename.startswith(("<", *_LIBRARIES))), None)


def _where(innermost: FrameType, called: FrameType) -> str:
    """A function in which a thread is, and the call in another file that it has made."""
    at = "" if called.f_code.co_filename == innermost.f_code.co_filename else f", at {_line_of(innermost)}"
    return f", in {_line_of(called)}{at}"


def _line_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"


def _is_calling(frame: FrameType) -> bool:
    """Tell whether it is of what calls users' functions: levelog, or the event loop."""
    return is_levelogs(frame) or str(frame.f_globals.get("__name__", "")).startswith("asyncio.")


def _answer(probe: str, found: Mapping[str, str]) -> ProbeAnswer:
    is_good = not any(found.values())
    lines = [
        f"[-]{name} failed: {' '.join(wrong.split())}" if wrong else f"[+]{name} ok" for name, wrong in found.items()
    ]
    return ProbeAnswer(is_good, "\n".join([*lines, f"{probe} check {'passed' if is_good else 'failed'}", ""]))
