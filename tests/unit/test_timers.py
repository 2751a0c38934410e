"""When a timer is due next, whatever clocks have said of its last call."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Operator, OperatorError
from levelog.edges import Unfinished
from levelog.effects import Call
from levelog.handlers.callnames import CHANGED, TIMED
from levelog.handlers.forobjects import CallOptions
from levelog.handlers.injection import Lender
from levelog.handlers.outcomes import PATIENCE, CallResult, next_call
from levelog.handlers.timers import Tick, TimerHandler, microseconds, moment
from levelog.resources import Metadata
from levelog_base.wire.objects import Uid
from rigs.kinds import Web

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
MOMENTS: Final = st.timedeltas(timedelta(days=-100), timedelta(days=100)).map(lambda after: NOW + after)
TIMES: Final = st.timedeltas(timedelta(seconds=1), timedelta(days=10))


def check(web: Web) -> None:
    """Nothing is done."""


@given(created=MOMENTS, due=MOMENTS, made=MOMENTS, every=TIMES, sharp=st.booleans())
def test_invariant_16_a_due_time_is_called_for_once_and_the_next_one_comes_soon(
    created: datetime, due: datetime, made: datetime, every: timedelta, sharp: bool
) -> None:
    timer = TimerHandler(check, every, timedelta(0), CallOptions(), Lender("webs"), sharp=sharp)
    call = Call[Tick, None](request=Tick(due=due, object={}), result=None, idempotency_key="", called_at=made)
    following = timer.due(created, timer.last(call, NOW), NOW)
    assert following <= NOW + 2 * max(every, PATIENCE)
    if created <= due <= NOW and made <= NOW:
        assert following > max(due, made)


@given(created=MOMENTS, every=TIMES)
def test_the_first_call_without_a_record_comes_soon_whatever_the_api_says_of_the_creation(
    created: datetime, every: timedelta
) -> None:
    timer = TimerHandler(check, every, timedelta(0), CallOptions(), Lender("webs"), recorded=False)
    first = moment(timer.first(created, microseconds(NOW)))
    assert first <= NOW + max(every, PATIENCE)
    if created <= NOW:
        assert first == created


def test_an_index_may_have_the_name_that_calls_of_a_timer_have_only_if_they_are_recorded() -> None:
    def check_calls(web: Web) -> list[tuple[str, str]]:
        return [(web.metadata.name, "")]

    op = Operator("webs")
    op.timer(Web, every=timedelta(hours=1), recorded=False)(check)
    op.index(check_calls)
    op = Operator("webs")
    op.timer(Web, every=timedelta(hours=1))(check)
    with pytest.raises(OperatorError, match="has the timer 'check_calls' already"):
        op.index(check_calls)


@given(made=MOMENTS, delay=TIMES)
def test_an_unfinished_call_is_made_again_soon(made: datetime, delay: timedelta) -> None:
    result = CallResult(left=Unfinished(began=NOW, delay=delay))
    call = Call[Any, Any](request=None, result=result, idempotency_key="", called_at=made)
    following = next_call(call, None, NOW)
    assert following is not None
    assert following[0] <= NOW + 2 * max(delay, PATIENCE)
    if made <= NOW:
        assert following[0] == made + delay
    else:
        assert following[0] >= NOW


@given(noted=MOMENTS, idle=TIMES)
def test_an_idle_timer_waits_for_nothing_that_was_noted_by_a_clock_that_was_ahead(
    noted: datetime, idle: timedelta
) -> None:
    op = Operator("webs")
    op.timer(every=timedelta(seconds=1), idle=idle)(check)
    view = op.views["check"]
    web = Web(metadata=Metadata(name="shop", uid=Uid("u1"), creation_timestamp=NOW - timedelta(days=100)))
    timer = TimerHandler(check, idle, timedelta(0), CallOptions(), Lender("webs"), idle=idle)
    note = Tick(object=timer.shown(web))
    call = Call[Tick, None](request=note, result=None, name=CHANGED, idempotency_key="", called_at=noted)
    level = view.function(web, now=NOW, **{f"check{TIMED}": {"u1": [call]}})
    if level.drift:
        assert noted - NOW > max(idle, PATIENCE) or noted + idle <= NOW
    else:
        assert level.recheck_at <= NOW + 2 * max(idle, PATIENCE)
