"""Writes the table of files and folders in each room's README out of their docstrings: `make reference`."""

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
    """The package of each room, by the room's name: what the wheels of the three distributions hold."""
    found = [
        project.parent / package
        for project in (ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml"))
        for package in tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]
    return {package.parent.name: package for package in found}


def modules(package: Path) -> list[Path]:
    """Files of a package, relative to it; revisions of the schema are named by their folder."""
    found = (file.relative_to(package) for file in package.rglob("*.py") if file.name != "__init__.py")
    return [file for file in found if "versions" not in file.parts]


def entries(package: Path) -> dict[str, Path]:
    """What the table names: the files of a package, then its folders, each with the file that describes it."""
    found = modules(package)
    files = {file.name: file for file in sorted(found) if len(file.parts) == 1}
    folders = sorted({file.parts[0] for file in found if len(file.parts) > 1})
    return files | {f"{folder}/": Path(folder, "__init__.py") for folder in folders}


def row(package: Path, name: str, file: Path) -> str:
    """A file or folder, and the first line of its docstring."""
    docstring = ast.get_docstring(ast.parse((package / file).read_text()))
    if not docstring:
        raise ValueError(f"{package / file} has no docstring")
    return f"| `{name}` | {docstring.partition(chr(10))[0]} |\n"


def readme(room: str, package: Path) -> str:
    """The README of a room with a table that is true: rows that stand keep their order, new ones come last."""
    page = (ROOT / room / "README.md").read_text()
    found = TABLE.search(page)
    stands = re.findall(r"^\| `([^`]+)`", found[1], re.MULTILINE) if found else []
    shown = sorted(entries(package).items(), key=lambda entry: _place(entry[0], stands))
    table = "| file | holds |\n|---|---|\n" + "".join(row(package, name, file) for name, file in shown)
    if found:
        return page[: found.start()] + table + page[found.end() :]
    start = START.search(page)
    if start is None or page[start.start()] == "-":  # in a list, which a table would tear apart
        return f"{page.rstrip()}\n\n{table}"
    return f"{page[: start.start()]}{table}\n{page[start.start() :]}"


def _place(name: str, stands: Sequence[str]) -> tuple[bool, int]:
    """Files, then folders; each as it stands in the table, and last if it is new."""
    return name.endswith("/"), stands.index(name) if name in stands else len(stands)


if __name__ == "__main__":
    for name, package in packages().items():
        (ROOT / name / "README.md").write_text(readme(name, package))
