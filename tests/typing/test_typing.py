"""What mypy and pyright say of code as users write it: nothing where it is right, and each mistake at its line."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from levelog_cli.loading import load_operators

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FILES = sorted((HERE / "accepted").glob("*.py")) + sorted((HERE / "rejected").glob("*.py"))
MARK = re.compile(r"#.*\berror: ")

pytestmark = pytest.mark.timeout(900)  # a cold cache and a busy machine

Place = tuple[str, int]
Checker = Callable[[Path], Iterator[tuple[Place, str]]]


def run(*command: str) -> str:
    """Run a type checker at the root; it ends with status 1 as it finds something."""
    ran = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def marked() -> dict[Place, str]:
    return {
        (file.name, number): line.strip()
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if MARK.search(line)
    }


def found_by_mypy(_: Path) -> Iterator[tuple[Place, str]]:
    for line in run("mypy", *map(str, FILES)).splitlines():
        if found := re.match(r"(.*?):(\d+): error: (.*)", line):
            yield (Path(found[1]).name, int(found[2])), found[3]


def found_by_pyright(folder: Path) -> Iterator[tuple[Place, str]]:
    """On a copy, with the project's settings: these keep it from the files that are wrong on purpose."""
    for file in FILES:
        shutil.copy(file, folder)
    settings = folder / "pyrightconfig.json"
    settings.write_text(json.dumps({"extends": str(ROOT / "pyproject.toml"), "include": ["."], "exclude": []}))
    for found in json.loads(run("pyright", "--outputjson", "--project", str(settings)))["generalDiagnostics"]:
        yield (Path(found["file"]).name, found["range"]["start"]["line"] + 1), found["message"]


@pytest.mark.parametrize("checker", [pytest.param(found_by_mypy, marks=pytest.mark.long), found_by_pyright])
def test_each_marked_mistake_is_reported_and_nothing_else(checker: Checker, tmp_path: Path) -> None:
    reported = dict(checker(tmp_path))
    expected = marked()
    assert len(expected) > 30
    assert {place: said for place, said in reported.items() if place not in expected} == {}, "reported, not marked"
    assert {place: line for place, line in expected.items() if place not in reported} == {}, "marked, not reported"


def test_what_type_checkers_accept_levelog_accepts_too() -> None:
    [op] = load_operators([HERE / "accepted/webs.py"])
    assert set(op.reconcilers) == {"pods", "quotas", "status", "size", "rest", "parts", "account"}
