"""Tests and code that documents name in backquotes, looked up in the files of the repository.

A test is `quick::rows_are_those_that_sqlalchemy_gives`: `test_rows_…` in the one file `test_quick.py`, which a folder
before it tells from others of its name; a story that it tells is in brackets. Code is `decide/rules.py::conclude`, in
the one file of that path in any room.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]

_TEST: Final = re.compile(r"`(\w+/)?(\w+)::(\w+)(?:\[([\w ]+)\])?`")
_CODE: Final = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


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
    files = [*ROOT.glob(f"tests/**/{folder or ''}test_{stem}.py"), *ROOT.glob(f"examples/*/test_{stem}.py")]
    assert len(files) == 1, (text, files)
    assert f"test_{name}" in _names(ast.parse(files[0].read_text()).body), text
    return NamedTest(stem, name, story)


def find_code(text: str) -> Path:
    """The file with the code of this name. Raises AssertionError if the name is not in it."""
    named = _CODE.fullmatch(text)
    assert named, text
    path, name = named.groups()
    files = [found for package in ROOT.glob("*/levelog*") for found in package.parent.rglob(path)]
    assert len(files) == 1, (text, files)
    body = ast.parse(files[0].read_text()).body
    for part in name.split("."):
        found = dict(_definitions(body))
        assert part in found, text
        body = found[part]
    return files[0]


def _names(body: list[ast.stmt]) -> set[str]:
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Names that are defined, each with what is defined in it."""
    for each in body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name, each.body
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, []
            case _:
                continue
