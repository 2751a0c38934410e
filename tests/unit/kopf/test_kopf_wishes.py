"""docs/kopf-wishes.md says of each of twenty wishes what becomes of it, and names the tests that show it."""

import re

import pytest

from rigs.kopfrivals import CASES
from rigs.namedtests import ROOT, named_test

PAGE = (ROOT / "docs/kopf-wishes.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (.*?) \| (has|partly|lacks)\[\^(\d+)\] \| (.+) \|$", re.MULTILINE)
NOTE = re.compile(r"^\[\^(\d+)\]: (.*)$", re.MULTILINE)


def test_there_are_twenty_each_with_a_note() -> None:
    numbers = [row[3] for row in ROW.findall(PAGE)]
    assert numbers == [note[0] for note in NOTE.findall(PAGE)] == [str(number) for number in range(1, 21)]


@pytest.mark.parametrize(("number", "text"), NOTE.findall(PAGE), ids=str)
def test_the_tests_that_a_note_names_are_there(number: str, text: str) -> None:
    tests = re.findall(r"`[^`]+::[^`]+`", text)
    assert tests, number
    for each in tests:
        found = named_test(each)
        assert found.story is None or found.story in CASES
