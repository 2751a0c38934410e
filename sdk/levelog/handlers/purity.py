"""Finds clocks, random numbers, environment reads and sleeps in the byte code of pure functions.

It follows functions of the same folder that are called by a global name, and imports inside functions. It does not see
what is reached through methods, containers or other libraries.
"""

import datetime
import dis
import importlib
import inspect
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from levelog_base.errors import OperatorError

_CLOCKS: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
)
_TODAY: Final[Mapping[Any, tuple[str, ...]]] = {
    datetime.datetime: ("now", "utcnow", "today"),
    datetime.date: ("today",),
}
_CLOCK: Final = "reads the clock"
_CHANCE: Final = "asks for chance"
_ENVIRONMENT: Final = "reads the environment"
_SLEEP: Final = "sleeps"

_INSTEAD: Final = {
    _CLOCK: "take a parameter now: datetime",
    _CHANCE: "derive it from what the object says, as from metadata.uid",
    _SLEEP: "ask for a later evaluation by Level(…, recheck_at=…)",
    _ENVIRONMENT: "read it when the module is loaded and give it to Operator(settings=…)",
}
_INSTEAD_IN_INDEX: Final = "give the time that the object says, and compare it in a view, with now: datetime"


def _impure_values() -> Iterator[tuple[int, tuple[str, str]]]:
    for name in _CLOCKS:
        if hasattr(time, name):
            yield id(getattr(time, name)), (_CLOCK, f"time.{name}")
    yield id(time.sleep), (_SLEEP, "time.sleep")
    for module, names in (
        (random, [name for name in random.__all__ if name != "Random"]),
        (secrets, secrets.__all__),
        (uuid, ("uuid1", "uuid4")),
        (os, ("urandom",)),
    ):
        for name in names:
            yield id(getattr(module, name)), (_CHANCE, f"{module.__name__}.{name}")
    for name in ("environ", "environb", "getenv", "getenvb"):
        if hasattr(os, name):
            yield id(getattr(os, name)), (_ENVIRONMENT, f"os.{name}")


_IMPURE: Final = dict(_impure_values())
"""Functions by identity, so that it does not matter under which name they were imported."""
_WATCHED: Final = ("datetime", "os", "random", "secrets", "time", "uuid")
_UNRELATED: Final = ("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL")
"""Instructions that stand between a name and its attribute and mean nothing here."""


def require_pure(kind: str, function: Callable[..., Any]) -> None:
    """Look for impure reads in a function and in those of its own that it calls.

    Raises OperatorError with file, line and what to write instead.
    """
    first = inspect.unwrap(function)
    if not isinstance(first, FunctionType):
        return
    folder = Path(first.__code__.co_filename).parent
    waiting: list[FunctionType] = [first]
    seen: set[CodeType] = set()
    while waiting:
        current = waiting.pop()
        if current.__code__ in seen:
            continue
        seen.add(current.__code__)
        for value, line in _loaded(current, current.__code__, {}):
            if id(value) in _IMPURE or isinstance(value, _Today):
                does, name = _IMPURE[id(value)] if id(value) in _IMPURE else (_CLOCK, str(value))
                file = Path(current.__code__.co_filename).name
                instead = _INSTEAD_IN_INDEX if does is _CLOCK and kind == "index" else _INSTEAD[does]
                raise OperatorError(
                    f"{kind} {function.__name__}: {does} with {name} in {file} line {line}, "
                    f"but it computes from what it is given alone: {instead}"
                )
            called = inspect.unwrap(value) if callable(value) else None
            if isinstance(called, FunctionType) and Path(called.__code__.co_filename).is_relative_to(folder):
                waiting.append(called)


class _Today(str):
    """`datetime.now` and the like, which are another object at each look."""

    __slots__ = ()


def _loaded(function: FunctionType, code: CodeType, imported: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    """Values that the code loads by global names, enclosed names, imports and their attributes, with lines."""
    enclosed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    local = dict(imported)
    value: Any = None
    module: Any = None
    for step in dis.get_instructions(code):
        line = (step.positions.lineno if step.positions else None) or code.co_firstlineno
        match step.opname:
            case name if name in _UNRELATED:
                continue
            case "LOAD_GLOBAL" | "LOAD_NAME":
                value = function.__globals__.get(step.argval)
            case "LOAD_DEREF" | "LOAD_CLASSDEREF":
                value = _content(enclosed.get(step.argval)) or local.get(step.argval)
            case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW":
                value = local.get(step.argval)
            case "IMPORT_NAME":
                value = module = importlib.import_module(step.argval) if step.argval in _WATCHED else None
            case "IMPORT_FROM":
                value = _attribute(module, step.argval)
            case "STORE_FAST" | "STORE_DEREF":
                local[step.argval] = value
                value = None
            case "STORE_FAST_LOAD_FAST":
                stored, loaded = step.argval
                local[stored] = value
                value = local.get(loaded)
            case "LOAD_ATTR" | "LOAD_METHOD":
                value = _attribute(value, step.argval)
            case _:
                value = None
        if value is not None:
            yield value, line
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded(function, constant, local)


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, ModuleType):
        return vars(owner).get(name)
    if isinstance(owner, type) and name in _TODAY.get(owner, ()):
        return _Today(f"{owner.__name__}.{name}")
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents if cell is not None else None
    except ValueError:  # not assigned yet
        return None
