"""Reads of the clock, of chance and of the environment are found when the operator is loaded."""

import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from levelog import Level, Operator, OperatorError
from levelog.handlers.purity import require_pure
from levelog_processors.program import Program
from rigs.kinds import Web

LOADED_AT = time.time()
HOME = os.environ.get("HOME")


def below() -> float:
    return time.time()


def through_a_function(web: Web) -> Any:
    return below()


GIVEN = """
import datetime as dt, os, random, time, uuid
from datetime import date, datetime
from os import getenv
from random import choice
from time import monotonic as ticks
"""
READS = {
    "return datetime.now()": "reads the clock with datetime.now in reads.py line 2",
    "return dt.datetime.now(tz=dt.UTC)": "reads the clock with datetime.now",
    "return date.today()": "reads the clock with date.today",
    "return time.time()": "reads the clock with time.time",
    "return ticks()": "reads the clock with time.monotonic",
    "import time as clock; return clock.time()": "reads the clock with time.time",
    "from datetime import datetime as moment; return moment.now(tz=dt.UTC)": "reads the clock with datetime.now",
    "return [time.time() for _ in range(3)]": "reads the clock with time.time",
    "return (lambda: time.time())()": "reads the clock with time.time",
    "return random.random()": "asks for chance with random.random",
    "return choice('ab')": "asks for chance with random.choice",
    "return str(uuid.uuid4())": "asks for chance with uuid.uuid4",
    "return os.environ['HOME']": "reads the environment with os.environ",
    "return getenv('HOME')": "reads the environment with os.getenv",
    "time.sleep(1)": "sleeps with time.sleep",
}


@pytest.mark.parametrize("read", READS)
def test_an_impure_read_is_refused_with_its_line(read: str) -> None:
    names: dict[str, Any] = {}
    exec(GIVEN, names)
    exec(compile(f"def function(web):\n    {read}", "reads.py", "exec"), names)
    with pytest.raises(OperatorError, match=re.escape(f"view function: {READS[read]}")):
        require_pure("view", names["function"])


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
