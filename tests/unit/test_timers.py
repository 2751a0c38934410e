"""When a timer is due next, whatever clocks have said of its last call."""

from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from levelog import Resource
from levelog.effects import Call
from levelog.handlers.edgehandlers import EdgeOptions
from levelog.handlers.injection import Lender
from levelog.handlers.timers import PATIENCE, Tick, TimerHandler

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
MOMENTS: Final = st.timedeltas(timedelta(days=-100), timedelta(days=100)).map(lambda after: NOW + after)
TIMES: Final = st.timedeltas(timedelta(seconds=1), timedelta(days=10))


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


def check(web: Web) -> None:
    """Nothing is done."""


@given(created=MOMENTS.filter(lambda at: at <= NOW), due=MOMENTS, made=MOMENTS, every=TIMES, sharp=st.booleans())
def test_invariant_16_a_due_time_is_called_for_once_and_the_next_one_comes_soon(
    created: datetime, due: datetime, made: datetime, every: timedelta, sharp: bool
) -> None:
    timer = TimerHandler(check, every, timedelta(0), None, EdgeOptions(), Lender("webs"), sharp=sharp)
    call = Call[Tick, None](request=Tick(due=due, object={}), result=None, idempotency_key="", called_at=made)
    following = timer.due(created, timer.last(call, NOW), NOW)
    assert following <= NOW + 2 * max(every, PATIENCE)
    if created <= due <= NOW and made <= NOW:
        assert following > max(due, made)
