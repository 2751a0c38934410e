"""Each room says what is in it: files and folders by their docstrings, no stem twice, and the picture of all rooms."""

import ast
import re
import runpy
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MADE: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "docs/rooms.py"))
PACKAGES: Final[dict[str, Path]] = MADE["packages"]()
modules: Final[Callable[[Path], list[Path]]] = MADE["modules"]
ENDING: Final = re.compile(r"(ings?|ers?|ions?|ed|es|s|e)$")
LETTERS: Final = 6
"""Of a stem that are compared, without its ending."""
EVERYWHERE: Final = {"rules"}
"""Stand once in each stage of a room: what is pure there."""


def stem(file: Path) -> str:
    return ENDING.sub("", file.stem)[:LETTERS]


@pytest.mark.parametrize("room", sorted(PACKAGES))
def test_the_readme_names_each_file_and_folder_with_the_first_line_of_its_docstring(room: str) -> None:
    assert (ROOT / room / "README.md").read_text() == MADE["readme"](room, PACKAGES[room]), "run `make reference`"


@pytest.mark.parametrize("room", sorted(PACKAGES))
def test_no_stem_stands_twice_in_a_room(room: str) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in modules(PACKAGES[room]):
        if file.stem not in EVERYWHERE or file.parent == Path():
            found[stem(file)].append(str(file))
    assert {key: files for key, files in found.items() if len(files) > 1} == {}


def test_no_public_class_has_the_name_of_another() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES.values():
        for file in modules(package):
            for each in ast.parse((package / file).read_text()).body:
                if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                    found[each.name].append(f"{package.name}/{file}")
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    ("one", "other"), [("fold", "folding"), ("decide", "deciding"), ("reader", "reads"), ("recorded", "records")]
)
def test_a_stem_is_the_same_with_another_ending(one: str, other: str) -> None:
    assert stem(Path(one)) == stem(Path(other))


def test_the_picture_shows_the_rooms_that_are() -> None:
    _, _, below = (ROOT / "docs/architecture.svg").read_text().partition("What may import what")
    assert set(re.findall(r'<text class="name[^>]*>(\w+)<', below)) == set(PACKAGES)
