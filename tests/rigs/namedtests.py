"""Tests that documents name in backquotes, looked up in the files of the repository.

`quick::rows_are_those_that_sqlalchemy_gives` is `test_rows_…` in the one file `test_quick.py`, which a folder before it
tells from others of its name; a story that it tells is in brackets.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]

_TEST: Final = re.compile(r"`(\w+/)?(\w+)::(\w+)(?:\[([\w ]+)\])?`")


class NamedTest(NamedTuple):
    """A test that is there."""

    stem: str
    """The file without `test_`."""
    name: str
    """The function without `test_`."""
    story: str | None


def named_test(text: str) -> NamedTest:
    """The test of this name. Raises AssertionError if there is none, or more than one file of the name."""
    named = _TEST.fullmatch(text)
    assert named, text
    folder, stem, name, story = named.groups()
    files = _files(folder or "", stem)
    assert len(files) == 1, (text, files)
    assert f"test_{name}" in _names(files[0]), text
    return NamedTest(stem, name, story)


@cache
def _files(folder: str, stem: str) -> list[Path]:
    return [*ROOT.glob(f"tests/**/{folder}test_{stem}.py"), *ROOT.glob(f"examples/*/test_{stem}.py")]


@cache
def _names(file: Path) -> set[str]:
    body = ast.parse(file.read_text()).body
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
