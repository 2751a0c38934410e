from datetime import timedelta

from levelog_ingest.status import Backoff

SECOND = timedelta(seconds=1)


def test_waits_grow_to_the_longest_and_never_past_it() -> None:
    backoff = Backoff(first=SECOND, longest=8 * SECOND)
    waits = [backoff.failed() for _ in range(100)]
    for wait, most in zip(waits, [1, 2, 4, 8, 8, 8], strict=False):
        assert most * SECOND / 2 <= wait <= most * SECOND
    assert max(waits) <= 8 * SECOND


def test_success_begins_anew() -> None:
    backoff = Backoff(first=SECOND, longest=60 * SECOND)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= SECOND


def test_what_the_server_asks_for_is_the_least() -> None:
    assert Backoff(first=SECOND, longest=2 * SECOND).failed(30 * SECOND) == 30 * SECOND
