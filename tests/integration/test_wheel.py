"""What is installed: each room in one of three wheels, nothing beside them, and a sandbox that needs no levelog."""

import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from textwrap import indent
from typing import Final, NamedTuple

import pytest
from packaging.requirements import Requirement

from rigs.clusterclient import ClusterClient
from rigs.processes import Process
from rigs.waiting import until

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final[dict[str, Path]] = runpy.run_path(str(ROOT / "docs/rooms.py"))["packages"]()
PROJECTS: Final = {"levelog": ROOT, "levelog-base": ROOT / "base", "levelog-sandbox": ROOT / "sandbox"}


class Wheel(NamedTuple):
    """A freshly built wheel: its file, the names in it, and what it says about itself."""

    file: Path
    names: list[str]
    version: str
    requires: list[Requirement]

    @property
    def packages(self) -> list[Path]:
        return [room for room in ROOMS.values() if f"{room.name}/__init__.py" in self.names]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    """The wheel of each distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    return {name: _built(project, folder / name) for name, project in PROJECTS.items()}


def _built(project: Path, folder: Path) -> Wheel:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stderr
    [file] = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        says = Parser().parsestr(archive.read(metadata).decode())
    return Wheel(file, names, says["Version"], [Requirement(line) for line in says.get_all("Requires-Dist", [])])


def test_each_room_is_in_one_wheel_and_nothing_else_is(wheels: dict[str, Wheel]) -> None:
    held = [
        part
        for name, wheel in wheels.items()
        for part in {Path(each).parts[0] for each in wheel.names}
        - {f"{name.replace('-', '_')}-{wheel.version}.dist-info"}
    ]
    assert sorted(held) == sorted(room.name for room in ROOMS.values())


def test_the_sandbox_and_what_all_share_are_distributions_of_their_own(wheels: dict[str, Wheel]) -> None:
    assert [room.name for room in wheels["levelog-base"].packages] == ["levelog_base"]
    assert [room.name for room in wheels["levelog-sandbox"].packages] == ["levelog_sandbox"]


def test_wheels_of_one_version_need_each_other(wheels: dict[str, Wheel]) -> None:
    [version] = {wheel.version for wheel in wheels.values()}
    needed = {name: {str(each) for each in wheel.requires if each.name in PROJECTS} for name, wheel in wheels.items()}
    base, sandbox = f"levelog-base=={version}", f"levelog-sandbox=={version}"
    assert needed == {"levelog": {base, sandbox}, "levelog-sandbox": {base}, "levelog-base": set()}


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_holds_every_module_and_file_of_its_packages(wheels: dict[str, Wheel], name: str) -> None:
    missing = [
        str(path.relative_to(package.parent))
        for package in wheels[name].packages
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [each for each in missing if each not in wheels[name].names] == []


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_holds_no_test_and_no_compiled_file(wheels: dict[str, Wheel], name: str) -> None:
    assert [each for each in wheels[name].names if each.endswith(".pyc") or re.search(r"(^|/)tests?[_/]", each)] == []


@pytest.mark.parametrize("name", PROJECTS)
def test_each_package_says_that_it_is_typed_and_each_wheel_brings_the_licence(
    wheels: dict[str, Wheel], name: str
) -> None:
    wheel = wheels[name]
    assert [each for each in wheel.packages if f"{each.name}/py.typed" not in wheel.names] == []
    assert [each for each in wheel.names if each.endswith(".dist-info/licenses/LICENSE")] != []


def test_the_wheel_of_levelog_brings_the_command(wheels: dict[str, Wheel]) -> None:
    assert [each for each in wheels["levelog"].names if each.endswith(".dist-info/entry_points.txt")] != []


def test_the_pages_are_in_a_wheel_and_weigh_little(wheels: dict[str, Wheel]) -> None:
    shown = [path for path in ROOMS["ui"].rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(shown) >= 10
    assert {str(path.relative_to(ROOMS["ui"].parent)) for path in shown} <= set(wheels["levelog"].names)
    assert sum(path.stat().st_size for path in shown) <= 150_000


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Wheel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the sandbox and the libraries that its wheels ask for, and no other."""
    environment = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
    [site] = environment.glob("lib/python*/site-packages")
    asked = [each for name in ("levelog-base", "levelog-sandbox") for each in wheels[name].requires]
    for name in _libraries(asked):
        for path in _places(name):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    python = environment / "bin/python"
    found = [f"--find-links={wheels[name].file.parent}" for name in ("levelog-base", "levelog-sandbox")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-index", *found, "levelog-sandbox"], check=True, timeout=60)
    return python


def _libraries(asked: list[Requirement]) -> set[str]:
    """Names of installed distributions that the requirements lead to."""
    found: set[str] = set()
    while asked:
        each = asked.pop()
        if each.name not in found | set(PROJECTS) and (each.marker is None or each.marker.evaluate({"extra": ""})):
            found.add(each.name)
            asked += [Requirement(line) for line in distribution(each.name).requires or []]
    return found


def _places(name: str) -> Iterator[Path]:
    """The files and folders of an installed distribution in site-packages."""
    installed = distribution(name)
    for part in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
        yield Path(str(installed.locate_file(part)))


def _run(python: Path, program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(python), "-I", "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


async def test_the_sandbox_serves_without_levelog(alone: Path, tmp_path: Path) -> None:
    for absent in ("levelog", "levelog_cli", "kubernetes_asyncio", "sqlalchemy", "cryptography"):
        tried = _run(alone, f"import {absent}", tmp_path)
        assert f"ModuleNotFoundError: No module named '{absent}'" in tried.stderr
    log = tmp_path / "log"
    serving = Process([alone, "-I", "-m", "levelog_sandbox", "--port", "0"], log)

    async def url() -> str:
        serving.check()
        return log.read_text() if log.read_text().endswith("\n") else ""

    try:
        address = (await until(url, "the address of a sandbox")).strip()
        async with ClusterClient(address, user_agent="kubectl") as client:
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}, "data": {"a": "b"}}
            applied = await client.apply("/api/v1/namespaces/default/configmaps/first", manifest)
            found = await client.get("/api/v1/namespaces/default/configmaps/first")
    finally:
        serving.kill()
    assert (applied.code, found.code) == (201, 200)
    assert found.body["data"] == {"a": "b"}


def test_what_its_page_shows_runs(alone: Path, tmp_path: Path) -> None:
    page = (ROOT / "sandbox/README.md").read_text()
    first, more = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ran = _run(alone, first.replace("\nasyncio.run", f"{indent(more, ' ' * 8)}\nasyncio.run"), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"\['first'\] http://127\.0\.0\.1:\d+\n", ran.stdout)
