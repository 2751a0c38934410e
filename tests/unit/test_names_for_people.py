"""Names that levelog gives to what no user named, and numbers, in what people read."""

import re
from pathlib import Path

import pytest

from levelog.handlers.callnames import in_words
from levelog_base.counting import counted
from levelog_cli.printing.tables import labelled, table_lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("databases.acme.io:deleted/default/shop:0b5d-7e", "databases.acme.io/default/shop (deleted)"),
        ("for configmaps.:deleted/default/a: ValueError", "for configmaps.:deleted/default/a: ValueError"),
        ("handler f failed for webs.io:deleted/d/s:1-2: No", "handler f failed for webs.io/d/s (deleted): No"),
        ("configmaps.:deleted/_/a:u-1 is gone", "configmaps/_/a (deleted) is gone"),
        ("shop/@applied/parts[1]", "what parts applied[1]"),
        ("shop/@children/webs.io/pods, without", "pods that webs.io control, without"),
        ("index shop/@Pod leaves out", "index objects Pod leaves out"),
        ("shop/@finalizing/webs.io", "finalizers of webs.io"),
        ("mail a@b.com, image x/y@sha256:ab, call @Ann", "mail a@b.com, image x/y@sha256:ab, call @Ann"),
    ],
)
def test_a_name_of_levelogs_own_is_words(text: str, words: str) -> None:
    assert in_words(text) == words
    assert in_words(words) == words


def test_tables_and_folded_lines_have_words_however_narrow_they_are() -> None:
    name, words = "webs.example.com:deleted/default/shop:uid-1", "webs.example.com/default/shop (deleted)"
    for width in (20, 1 << 20):
        [_, *rows] = table_lines(["PARENT", ""], [[name, ""]], width)
        assert "".join(rows).replace(" ", "") == words.replace(" ", "")
    assert list(labelled("parent", name)) == [f"  parent    {words}"]


_ROOT = Path(__file__).parents[2]
_ROOMS = ("actuator", "cli", "history", "ingest", "kube", "log", "migrations", "processors", "replay", "store")
_COUNTED = "objects|records|levels|claims|calls|receipts|rows|decisions|writes|results|times"


def test_one_of_a_thing_has_no_s() -> None:
    assert [counted(number, "more field") for number in (0, 1, 2)] == ["0 more fields", "1 more field", "2 more fields"]


def test_no_text_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    """Of lines of the log, whose numbers are not in the text of the code."""
    wrong = re.compile(rf'log\.\w+\([^)\n]*"[^"\n]*%d ({_COUNTED})\b')
    found = [
        f"{file.relative_to(_ROOT)}: {line.strip()}"
        for room in _ROOMS
        for file in (_ROOT / room).rglob("*.py")
        for line in file.read_text().splitlines()
        if wrong.search(line)
    ]
    assert [line for line in found if "%d levels: %s" not in line] == []  # which is for two and more
