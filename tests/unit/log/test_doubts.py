import pytest

from levelog_base.errors import HistoryInDoubt, IdentityMismatch
from levelog_log.doubts import LOST_QUORUM, Doubts, Sign
from rigs.clocks import Clock

LOSS = IdentityMismatch("the log ends at 10, before 20")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_invariant_13_a_loss_counts_once_it_has_lasted(clock: Clock) -> None:
    doubts = Doubts(3, clock)
    first = doubts.loss("ends before", 20, LOSS)
    assert isinstance(first, HistoryInDoubt)
    assert str(LOSS) in str(first)
    clock.now += LOST_QUORUM.total_seconds()
    assert doubts.loss("ends before", 20, LOSS) is LOSS


def test_invariant_13_a_loss_that_the_log_contradicts_has_to_last_anew(clock: Clock) -> None:
    doubts = Doubts(3, clock)
    doubts.loss("ends before", 20, LOSS)
    doubts.dispel("ends before", 20)
    clock.now += LOST_QUORUM.total_seconds()
    assert isinstance(doubts.loss("ends before", 20, LOSS), HistoryInDoubt)


@pytest.mark.parametrize(("sign", "up_to"), [("ends before", 19), ("other record", 20)])
def test_invariant_13_what_contradicts_another_loss_dispels_no_doubt(clock: Clock, sign: Sign, up_to: int) -> None:
    doubts = Doubts(3, clock)
    doubts.loss("ends before", 20, LOSS)
    doubts.dispel(sign, up_to)
    clock.now += LOST_QUORUM.total_seconds()
    assert doubts.loss("ends before", 20, LOSS) is LOSS


def test_a_log_of_one_replica_has_no_old_answers(clock: Clock) -> None:
    assert Doubts(1, clock).loss("gone", 0, LOSS) is LOSS
