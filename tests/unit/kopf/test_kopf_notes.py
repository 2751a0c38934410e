"""The pages about Kopf: features in the order of its documentation, and twenty wishes; each row names its tests."""

import re

import pytest

from rigs.kopfalike import ALIKE
from rigs.kopfrivals import CASES
from rigs.namedtests import ROOT, named_test

PAGE = ROOT / "docs/kopf-features.md"
PAGES = """
install concepts walkthrough/problem walkthrough/prerequisites walkthrough/resources walkthrough/starting
walkthrough/creation walkthrough/updates walkthrough/diffs walkthrough/deletion walkthrough/cleanup handlers daemons
timers kwargs async loading resources filters patches results errors scopes memos indexing admission startup shutdown
probing authentication configuration peering cli events hierarchies testing embedding docker deployment continuity
idempotence reconciliation tips-and-tricks troubleshooting
"""
"""Of Kopf's documentation, in its order, but for those about Kopf itself and about its own development."""
STORIES = {"a_story_that_fails_on_kopf_passes_here": CASES, "a_story_that_users_rely_on_is_as_with_kopf": ALIKE}
NOTE = re.compile(r"^\[\^(\w+)\]: (.*)$", re.MULTILINE)
VERDICT = re.compile(r"(works|differs|refused)\[\^(\w+)\]")
TEST = re.compile(r"`[^`]+::[^`]+`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "page"]


def notes() -> dict[str, str]:
    return dict(NOTE.findall(PAGE.read_text()))


def verdict(row: list[str]) -> tuple[str, str]:
    """What becomes of a feature, and the label of its note."""
    found = VERDICT.fullmatch(row[2])
    assert found, row
    return found[1], found[2]


def test_each_page_of_kopfs_documentation_has_rows_in_its_order() -> None:
    assert list(dict.fromkeys(row[0] for row in rows())) == PAGES.split()


def test_each_row_has_a_note_and_no_two_notes_are_the_same() -> None:
    labels, named = zip(*NOTE.findall(PAGE.read_text()), strict=True)
    assert {verdict(row)[1] for row in rows()} == set(labels)
    assert len(labels) == len(set(labels)) == len(set(named))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_each_row_says_what_becomes_of_a_feature_and_its_note_names_tests_that_are_there(row: list[str]) -> None:
    becomes, label = verdict(row)
    assert row[3] or becomes != "differs", "how does it differ?"
    tests = TEST.findall(notes()[label])
    assert tests, label
    for text in tests:
        stem, name, story = named_test(text)
        assert (story in STORIES[name]) if stem == "kopf_itself" else (story is None), text


WISHES = (ROOT / "docs/kopf-wishes.md").read_text()
WISH = re.compile(r"^\| (.+?) \| (.*?) \| (has|partly|lacks)\[\^(\d+)\] \| (.+) \|$", re.MULTILINE)


def test_there_are_twenty_each_with_a_note() -> None:
    numbers = [row[3] for row in WISH.findall(WISHES)]
    assert numbers == [note[0] for note in NOTE.findall(WISHES)] == [str(number) for number in range(1, 21)]


@pytest.mark.parametrize(("number", "text"), NOTE.findall(WISHES), ids=str)
def test_the_tests_that_a_note_names_are_there(number: str, text: str) -> None:
    tests = TEST.findall(text)
    assert tests, number
    for each in tests:
        found = named_test(each)
        assert found.story is None or found.story in CASES
