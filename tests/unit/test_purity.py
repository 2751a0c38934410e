"""Reads of the clock, of chance and of the environment are found when the operator is loaded."""

import datetime as dt
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from os import getenv
from random import choice
from time import monotonic as ticks
from typing import Any

import pytest

from levelog import Level, Operator, OperatorError
from levelog.handlers.purity import require_pure
from levelog_processors.program import Program
from rigs.kinds import Web

LOADED_AT = time.time()
HOME = os.environ.get("HOME")


def now(web: Web) -> Any:
    return datetime.now()  # noqa: DTZ005


def now_of_a_module(web: Web) -> Any:
    return dt.datetime.now(tz=dt.UTC)


def today(web: Web) -> Any:
    return date.today()  # noqa: DTZ011


def clock(web: Web) -> Any:
    return time.time()


def renamed(web: Web) -> Any:
    return ticks()


def imports_inside(web: Web) -> Any:
    import time as clock

    return clock.time()


def imports_from_inside(web: Web) -> Any:
    from datetime import datetime as moment

    return moment.now(tz=dt.UTC)


def in_a_comprehension(web: Web) -> Any:
    return [time.time() for _ in range(3)]


def in_an_inner_function(web: Web) -> Any:
    def inner() -> float:
        return time.time()

    return inner()


def chance(web: Web) -> Any:
    return random.random()


def chosen(web: Web) -> Any:
    return choice("ab")


def unique(web: Web) -> Any:
    return str(uuid.uuid4())


def environment(web: Web) -> Any:
    return os.environ["HOME"]


def variable(web: Web) -> Any:
    return getenv("HOME")


def sleeps(web: Web) -> Any:
    time.sleep(1)


def through_a_function(web: Web) -> Any:
    return below()


def below() -> float:
    return time.time()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (now, "reads the clock with datetime.now in test_purity.py line "),
        (now_of_a_module, "reads the clock with datetime.now"),
        (today, "reads the clock with date.today"),
        (clock, "reads the clock with time.time"),
        (renamed, "reads the clock with time.monotonic"),
        (imports_inside, "reads the clock with time.time"),
        (imports_from_inside, "reads the clock with datetime.now"),
        (in_a_comprehension, "reads the clock with time.time"),
        (in_an_inner_function, "reads the clock with time.time"),
        (chance, "asks for chance with random.random"),
        (chosen, "asks for chance with random.choice"),
        (unique, "asks for chance with uuid.uuid4"),
        (environment, "reads the environment with os.environ"),
        (variable, "reads the environment with os.getenv"),
        (sleeps, "sleeps with time.sleep"),
        (through_a_function, "reads the clock with time.time"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_an_impure_read_is_refused_with_its_line(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(f"view {function.__name__}: {said}")):
        require_pure("view", function)


def test_the_line_is_the_one_of_the_read() -> None:
    with pytest.raises(OperatorError) as refused:
        require_pure("view", through_a_function)
    line = below.__code__.co_firstlineno + 1
    assert str(refused.value) == (
        f"view through_a_function: reads the clock with time.time in test_purity.py line {line}, but it computes from "
        "what it is given alone: take a parameter now: datetime"
    )


def pure(web: Web, now: datetime) -> Any:
    seeded = random.Random(web.metadata.uid)
    named = uuid.uuid5(uuid.NAMESPACE_DNS, web.metadata.name)
    when = datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(seconds=3)
    return seeded.random(), named, when, now, LOADED_AT, HOME, os.path.join("a", "b"), time.gmtime(0)  # noqa: PTH118


def shadows(web: Web, time: Any) -> Any:
    return time.time()


@pytest.mark.parametrize("function", [pure, shadows])
def test_what_only_looks_impure_is_accepted(function: Callable[..., Any]) -> None:
    require_pure("view", function)


def view(web: Web) -> Level[int]:
    return Level(1, int(below()))


def index(web: Web) -> Iterator[tuple[str, float]]:
    yield "", below()


def test_views_and_indices_are_looked_at_when_the_operator_is_loaded() -> None:
    op = Operator("webs")
    op.view(view)
    with pytest.raises(OperatorError, match="view view: reads the clock"):
        Program([op])
    op = Operator("webs")
    op.index(index)
    with pytest.raises(OperatorError, match=r"index index: reads the clock .*: give the time that the object says"):
        Program([op])
