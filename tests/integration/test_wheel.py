"""What is installed: the packages of the rooms, and nothing beside them."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = {Path(path).name: ROOT / path for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_a_wheel_holds_just_the_packages(contents: list[str]) -> None:
    metadata = f"{PROJECT['project']['name']}-{PROJECT['project']['version']}.dist-info"
    assert {Path(name).parts[0] for name in contents} == {*PACKAGES, metadata}


def test_a_wheel_holds_every_module_and_file_of_the_packages(contents: list[str]) -> None:
    missing = [
        str(path.relative_to(package.parent))
        for package in PACKAGES.values()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [name for name in missing if name not in contents] == []


def test_a_wheel_holds_no_test_and_no_compiled_file(contents: list[str]) -> None:
    assert [name for name in contents if name.endswith(".pyc") or re.search(r"(^|/)tests?[_/]", name)] == []


def test_each_package_says_that_it_is_typed(contents: list[str]) -> None:
    assert [name for name in PACKAGES if f"{name}/py.typed" not in contents] == []


def test_the_pages_are_in_a_wheel_and_weigh_little(contents: list[str]) -> None:
    shown = [path for path in (PACKAGES["levelog_ui"]).rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(shown) >= 10
    assert {str(path.relative_to(PACKAGES["levelog_ui"].parent)) for path in shown} <= set(contents)
    assert sum(path.stat().st_size for path in shown) <= 150_000


def test_a_wheel_brings_the_command_and_the_licence(contents: list[str]) -> None:
    metadata = f"{PROJECT['project']['name']}-{PROJECT['project']['version']}.dist-info"
    assert {f"{metadata}/entry_points.txt", f"{metadata}/licenses/LICENSE"} <= set(contents)
