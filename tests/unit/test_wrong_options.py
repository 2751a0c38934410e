"""Decorators of handlers that are written in a wrong way, and what the error says."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from levelog import Operator, Resource
from levelog.errors import OperatorError


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


async def handle(web: Web) -> None:
    pass


def page(request: str) -> None:
    pass


HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (
            lambda op: op.timer(Web, every=HOUR)(handle),
            r"timer\(every=.*annotate the function's first parameter with Web",
        ),
        (lambda op: op.timer(handle), r"takes options by name, not handle: timer\(every=timedelta\(hours=1\)\)"),
        (lambda op: op.timer()(handle), r"needs every=: timer\(every=timedelta\(hours=1\)\)"),
        (lambda op: op.timer(every=HOUR, sharp="yes")(handle), "sharp='yes' is neither True nor False"),
        (lambda op: op.timer(every=HOUR, retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.on.resume(Web, since=None)(handle), r"annotate the function's first parameter with Web"),
        (lambda op: op.on.resume(handle), r"takes options by name, not handle: resume\(since="),
        (lambda op: op.on.resume()(handle), r"needs since=: resume\(since=datetime\("),
        (lambda op: op.on.resume(since=None)(handle), r"needs since=: resume\(since=datetime\("),
        (lambda op: op.on.create(retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.on.event(retries=True)(handle), "retries=True is not a number of retries"),
        (lambda op: op.daemon(retries=True)(handle), "retries=True is not a number of retries"),
        *(
            (register, rf"{re.escape(handler)}: at_once={re.escape(repr(wrong))} is not a number of calls, 1 or more")
            for wrong in (0, -1, True, False, 2.0, "2", [2])
            for handler, register in (
                ("handler handle", lambda op, wrong=wrong: op.on.create(at_once=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.update(at_once=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.delete(at_once=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.field("metadata.labels", at_once=wrong)(handle)),
                ("handler handle", lambda op, wrong=wrong: op.on.resume(since=NOON, at_once=wrong)(handle)),
                ("timer handle", lambda op, wrong=wrong: op.timer(every=HOUR, at_once=wrong)(handle)),
                ("effect page", lambda op, wrong=wrong: op.effect(at_once=wrong)(page)),
            )
        ),
        (lambda op: op.daemon(at_once=2)(handle), "daemon handle: takes no option 'at_once'"),
        (lambda op: op.on.event(at_once=2)(handle), "on.event: takes no option 'at_once'"),
        *(
            (lambda op, name=name: getattr(op.on, name)(Web)(handle), "annotation of the function's first parameter")
            for name in ("create", "update", "delete", "event")
        ),
        (lambda op: op.daemon(Web)(handle), "annotation of the function's first parameter"),
    ],
)
def test_what_is_written_wrongly_is_refused_by_what_to_write(register: Callable[[Any], object], says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        register(Operator("webs"))
