"""docs/short-way.md: each rule has code and tests that are there, and the places where processes are killed are all."""

import re
from typing import Final

import pytest

from rigs.crashpoints import SEAMS, SEAMS_TOGETHER
from rigs.machine.planted import PLANTED
from rigs.namedcode import ROOT, find_code, named_test
from rigs.pages import table

PAGE: Final = ROOT / "docs/short-way.md"
HEADINGS: Final = ("A pass", "Claims and receipts", "Cheap by construction")
RULES: Final = [row for heading in HEADINGS for row in table(PAGE, heading)]
NOTES: Final = re.findall(r"^\[(\^\w+)\]: (.*)$", PAGE.read_text(), re.MULTILINE)
BUGS: Final = {case.bug.__name__ for case in PLANTED}


@pytest.mark.parametrize("row", RULES, ids=lambda row: row[0])
def test_each_rule_names_code_and_tests_that_are_there(row: list[str]) -> None:
    _, code, note = row
    for each in code.split(", "):
        find_code(each)
    for each in dict(NOTES)[note.strip("[]")].split(", "):
        test = named_test(each)
        assert (test.story in BUGS) if test.stem == "planted_bugs" else (test.story is None), each


def test_each_rule_has_a_note_and_each_note_has_a_rule() -> None:
    assert sorted(note.strip("[]") for _, _, note in RULES) == sorted(label for label, _ in NOTES)


def test_each_rule_is_there_once() -> None:
    rules = [rule for rule, _, _ in RULES]
    assert len(set(rules)) == len(rules) > 0


def test_what_is_rejected_names_a_decision() -> None:
    for _, _, decision in table(PAGE, "Rejected"):
        assert re.fullmatch(r"\[\d+\]\(decisions/\d{4}-[\w-]+\.md\)", decision), decision


def test_the_places_where_a_process_can_be_killed_are_those_of_the_tests() -> None:
    listed = [seam.strip("`") for seam, _ in table(PAGE, "Where a process can be killed")]
    assert listed == [str(seam) for seam in (*SEAMS, *SEAMS_TOGETHER)]
