"""Names that levelog gives to what no user named, in what people read."""

import pytest

from levelog.handlers.callnames import in_words
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
