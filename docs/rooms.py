"""Writes the table of files in each room's README out of their docstrings: `make reference`."""

import ast
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = re.compile(r"^\| file \| holds \|\n\|---\|---\|\n((?:\|.*\n)*)", re.MULTILINE)
START: Final = re.compile(r"^(?:- )?(?:\*\*)?Start reading", re.MULTILINE)


def packages() -> dict[str, Path]:
    """The package of each room, by the room's name."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    return {Path(package).parts[0]: ROOT / package for package in build["packages"]}


def modules(package: Path) -> list[Path]:
    """Files of a package, relative to it; revisions of the schema are named by their folder."""
    found = (file.relative_to(package) for file in package.rglob("*.py") if file.name != "__init__.py")
    return [file for file in found if "versions" not in file.parts]


def row(package: Path, file: Path) -> str:
    """A file and the first line of its docstring."""
    docstring = ast.get_docstring(ast.parse((package / file).read_text())) or ""
    return f"| `{file}` | {docstring.partition(chr(10))[0]} |\n"


def readme(room: str, package: Path) -> str:
    """The README of a room with a table that is true: rows that stand keep their order."""
    page = (ROOT / room / "README.md").read_text()
    found = TABLE.search(page)
    stands = re.findall(r"^\| `([^`]+)`", found[1], re.MULTILINE) if found else []
    files = sorted(modules(package), key=lambda file: _place(file, stands))
    table = "| file | holds |\n|---|---|\n" + "".join(row(package, file) for file in files)
    if found:
        return page[: found.start()] + table + page[found.end() :]
    start = START.search(page)
    if start is None or page[start.start()] == "-":  # in a list, which a table would tear apart
        return f"{page.rstrip()}\n\n{table}"
    return f"{page[: start.start()]}{table}\n{page[start.start() :]}"


def _place(file: Path, stands: Sequence[str]) -> tuple[int, int, str]:
    """After the files on top come folders, in their order in the table; a new file comes last in its folder."""
    folder = "" if len(file.parts) == 1 else file.parts[0]
    folders = list(dict.fromkeys(each.rpartition("/")[0].partition("/")[0] for each in stands))
    within = folders.index(folder) if folder in folders else len(folders)
    position = stands.index(str(file)) if str(file) in stands else len(stands)
    return (within if folder else -1, position, str(file))


if __name__ == "__main__":
    for name, package in packages().items():
        (ROOT / name / "README.md").write_text(readme(name, package))
