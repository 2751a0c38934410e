"""Differences of which only the hashes of values are known."""

from levelog_history.differences import differences

ONE, OTHER = (f"hmac-sha256:{digit * 64}" for digit in "ab")


def test_a_hash_that_differs_is_told_as_another_value_and_one_that_comes_or_goes_as_it_is() -> None:
    [changed] = differences({"data": {"password": ONE}}, {"data": {"password": OTHER}})
    assert str(changed) == "data.password: another redacted value"
    [shown] = differences({"data": {"password": ONE}}, {"data": {"password": "clear"}})
    assert str(shown).endswith('-> "clear"')
