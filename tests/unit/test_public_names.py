"""What a user meets first: `import levelog`, and `help()` of what it holds."""

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import levelog
import levelog.testing

MOST_MODULES = 72
"""Loaded by `import levelog` beside msgspec and what that loads; 31 when this was written."""
INTERNAL = re.compile(r"levelog\.(handlers|injection|canonical|fingerprints)\b|\b_(?!_)[a-z]\w*\b")
OF_NAMED_TUPLES = ("_asdict", "_replace", "_make", "_field")
PUBLIC = {name: getattr(levelog, name) for name in levelog.__all__} | {
    f"testing.{name}": getattr(levelog.testing, name) for name in levelog.testing.__all__
}
OURS = {name: value for name, value in PUBLIC.items() if getattr(value, "__module__", "").startswith("levelog")}


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Public functions and properties of a class of ours."""
    if inspect.isclass(value):
        for name, member in vars(value).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield name, member


def page(value: Any) -> str:
    """What `help()` shows, less what comes from elsewhere: special methods, and members that are inherited."""
    text = pydoc.plain(pydoc.render_doc(value))
    own, *_ = re.split(r"^ \|  (?:Methods|Data|Readonly|Class methods).* inherited from", text, flags=re.MULTILINE)
    return own


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_has_a_sentence_of_its_own(name: str) -> None:
    if name not in OURS:
        assert name in ("Diff", "Manifest")  # aliases, which have no place for one
        return
    said = inspect.getdoc(OURS[name]) or ""
    assert re.match(r"[A-Z`].*[.:]$", said.splitlines()[0] if said else ""), said


@pytest.mark.parametrize("name", OURS)
def test_each_public_method_has_a_sentence_of_its_own(name: str) -> None:
    for member, value in members(OURS[name]):
        said = inspect.getdoc(value) or ""
        assert re.match(r"[A-Z`].*[.:]$", said.splitlines()[0] if said else ""), f"{name}.{member}: {said!r}"


@pytest.mark.parametrize("name", OURS)
def test_help_shows_nothing_private(name: str) -> None:
    lines = [line.strip(" |") for line in page(OURS[name]).splitlines()]
    lines = [line for line in lines if not line.startswith(OF_NAMED_TUPLES)]
    assert [line for line in lines if INTERNAL.search(line) and not line.startswith(("__", "msgspec."))] == []


def loaded(first: str, then: str) -> set[str]:
    """Modules that the second import loads, after the first."""
    program = f"import sys, {first}; before = set(sys.modules); import {then}; print(*(set(sys.modules) - before))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(ended.stdout.split())


def test_importing_levelog_loads_itself_and_a_little_of_the_standard_library() -> None:
    modules = loaded("msgspec, msgspec.json", "levelog")
    elsewhere = {
        name for name in modules if name.partition(".")[0] not in {"levelog", "levelog_base", *sys.stdlib_module_names}
    }
    assert elsewhere == set()
    assert len(modules) <= MOST_MODULES, sorted(modules)
