"""When a replay stops in a user's function, and what it prints about the decision."""

import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog.calls.faults import Interruption
from levelog.levels import Drift
from levelog_processors.decide.viewcalls import Evaluation
from levelog_processors.guard import suspended
from levelog_replay.effects.receipts import Came
from levelog_replay.stops.debugger import DebuggerLeft, HandlerDebugger
from levelog_store.decide.decisions import Decision, IntentRow
from levelog_store.rows import IndexKey, StoredObject, ViewParent

Kind: TypeAlias = Literal["view", "reconcile function", "handler", "timer", "effect"]


class ReachedOutside(Interruption):
    """`breakpoint()` was reached where nobody could ask: in a thread, or while the loop has to go on."""


class Breaks(Struct, frozen=True, kw_only=True):
    """Which functions are stopped in, for which decisions."""

    functions: frozenset[str] = frozenset()
    """Names, `operator/function`: of a view, also its reconcile function where that is called."""
    decisions: frozenset[tuple[str, str, int]] = frozenset()
    """Identities of decisions: the view, the reconcile function where that is called, and what is called again."""

    def __bool__(self) -> bool:
        return bool(self.functions or self.decisions)


class _Made(Struct, kw_only=True):
    """What is made again."""

    past: Decision
    """The decision, or that which asked for the call."""
    program: str
    """Which version of the code makes it; empty: there is one."""
    is_chosen: bool = False
    """Somebody wants to see it made."""


class Scene(_Made, kw_only=True):
    """A decision that is being made again."""

    parent: StoredObject
    known: Mapping[IndexKey, tuple[bytes, ...]]
    """The recorded reads, with the JSON of the values."""
    evaluation: Evaluation

    @property
    def reads(self) -> Mapping[IndexKey, tuple[bytes, ...]]:
        """The reads of the view so far; until it has returned, also the recorded ones."""
        read = self.evaluation.reads.contents
        return read if self.evaluation.result.level is not None else {**self.known, **read}

    @property
    def reconcile(self) -> str:
        """Name of the reconcile function, `operator/function`; empty: there is none."""
        return self.evaluation.facts.view.reconcile_name

    @property
    def drift(self) -> Drift | None:
        """The result of the view; None before it has returned."""
        return self.evaluation.result.level.drift if self.evaluation.result.level is not None else None


class CallScene(_Made, kw_only=True):
    """A call of a handler, timer or effect that is made again."""

    name: str
    """`operator/function`."""
    row: IntentRow
    retry: int
    """The number of attempts before."""
    then: Came | None
    """The recorded outcome; None: that is not known."""

    @property
    def request(self) -> Any:
        """Its argument, decoded JSON."""
        return msgspec.json.decode(self.row.body)


class Stop(Struct, frozen=True, kw_only=True):
    """The reason for a stop, and its place."""

    kind: Kind
    scene: Scene | CallScene
    error: BaseException | None = None
    """The exception of the function."""


class Stops:
    """Chooses where to stop, and asks; used in one event loop, by all sides of a replay in turn."""

    def __init__(
        self,
        breaks: Breaks,
        *,
        asks_of_errors: bool,
        tell: Callable[[Stop], Iterable[str]],
        before_asking: Callable[[], None],
    ) -> None:
        """`asks_of_errors`: also where a function raises; `tell` gives the lines of a stop."""
        self._breaks = breaks
        self._asks_of_errors = asks_of_errors
        self._tell = tell
        self._before_asking = before_asking
        self._debugger: HandlerDebugger | None = None
        self._scenes: dict[ViewParent, Scene] = {}
        self._chosen: tuple[str, str, int] | None = None
        self._now: Stop | None = None
        self._raised: set[tuple[str, str, int]] = set()
        self.is_on = bool(breaks) or asks_of_errors
        """Decisions are made one at a time, and every function is called where it can be stopped."""

    def begin(self, scene: Scene) -> None:
        """Take note of a decision, before its view is called."""
        past = scene.past
        scene.is_chosen = past.identity == self._chosen
        self._scenes[past.view, past.parent] = scene

    def has_asked_of_error(self, past: Decision) -> bool:
        """Tell whether a function raised for this decision, and was looked at."""
        return past.identity in self._raised

    @contextmanager
    def choosing(self, past: Decision) -> Generator[None]:
        """Stop in the functions of this decision, if it is made in the context."""
        self._chosen = past.identity
        try:
            yield
        finally:
            self._chosen = None

    @contextmanager
    def at(self, kind: Kind, level: ViewParent, function: Callable[..., Any]) -> Generator[None]:
        """Around a call that a decision makes: stop at its first line if that is wanted, and where it raises.

        Raises DebuggerLeft.
        """
        scene = self._scenes.get(level)
        with self._within(Stop(kind=kind, scene=scene) if scene is not None else None, function):
            yield

    @contextmanager
    def at_call(self, kind: Kind, scene: CallScene, function: Callable[..., Any]) -> Generator[None]:
        """The same around a call that a decision asked for."""
        scene.is_chosen = scene.past.identity == self._chosen
        with self._within(Stop(kind=kind, scene=scene), function):
            yield

    @contextmanager
    def _within(self, stop: Stop | None, function: Callable[..., Any]) -> Generator[None]:
        self._refuse_if_left()
        self._now = stop
        code = getattr(inspect.unwrap(function), "__code__", None)
        if stop is not None and code is not None and self._is_wanted(stop):
            self._at_hand.enter(code, self._tell(stop))
        try:
            yield
        except Exception as error:
            self._leave()
            if stop is not None and self._asks_of_errors:
                self._raised.add(stop.scene.past.identity)
                self._at_hand.look_back(error.__traceback__, self._tell(replace(stop, error=error)))
            raise
        finally:
            self._now = None
            self._leave()
        self._refuse_if_left()

    @contextmanager
    def heeding(self) -> Generator[None]:
        """Let `breakpoint()` ask in the context, unless PYTHONBREAKPOINT says otherwise."""
        before = sys.breakpointhook
        if not os.environ.get("PYTHONBREAKPOINT"):
            sys.breakpointhook = self._here
        try:
            yield
        finally:
            sys.breakpointhook = before

    def _here(self, *_: object, **__: object) -> None:
        if _is_outside.get():
            self.is_on = True
            raise ReachedOutside
        heading = self._tell(self._now) if self._now is not None else ()
        frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the one way to the caller's frame
        self._at_hand.enter_here(frame, heading)

    def _is_wanted(self, stop: Stop) -> bool:
        scene, breaks = stop.scene, self._breaks
        if scene.is_chosen or scene.past.identity in breaks.decisions:
            return True
        if isinstance(scene, CallScene):
            return scene.name in breaks.functions
        if scene.past.view in breaks.functions:
            return True
        return stop.kind == "reconcile function" and scene.reconcile in breaks.functions

    @property
    def _at_hand(self) -> HandlerDebugger:
        if self._debugger is None:
            with suspended():  # it reads its settings
                self._debugger = HandlerDebugger(self._before_asking)
        return self._debugger

    def _leave(self) -> None:
        if self._debugger is not None:
            self._debugger.leave()

    def _refuse_if_left(self) -> None:
        """Whatever a function made of the exception: nothing is called after somebody has left."""
        if self._debugger is not None and self._debugger.is_left:
            raise DebuggerLeft


_is_outside: ContextVar[bool] = ContextVar("levelog_breakpoint_is_outside", default=False)


@contextmanager
def outside() -> Generator[None]:
    """Functions called in the context cannot be stopped: `breakpoint()` raises ReachedOutside in them."""
    token = _is_outside.set(True)
    try:
        yield
    finally:
        _is_outside.reset(token)
