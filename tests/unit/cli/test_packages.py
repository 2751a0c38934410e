"""Operators in packages: by the name of a module, as `kopf run -m` and `python -m` take it, or by file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from levelog_cli.loading import load_operators
from levelog_cli.main import app
from levelog_cli.packages import file_of, package_of

KOPF = "from levelog.compat import kopf\n"
FILES = {
    "acme_of_this_test/__init__.py": "",
    "acme_of_this_test/words.py": "GREETING = 'hello'\n",
    "acme_of_this_test/handlers/__init__.py": f"{KOPF}from . import teams\n",
    "acme_of_this_test/handlers/teams.py": f"""{KOPF}
from ..words import GREETING

@kopf.on.create("example.com", "v1", "teams")
def made(**_):
    return GREETING
""",
    "acme_of_this_test/main.py": f"""{KOPF}
from . import words
from .handlers import teams
import acme_of_this_test.handlers.teams as same

assert teams is same
""",
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, source in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("acme_of_this_test")]:
        del sys.modules[name]


def found(name: str) -> Path:
    file = file_of(name)
    assert file is not None
    return file


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        ("acme_of_this_test.main", "main"),
        ("acme_of_this_test.handlers.teams", "teams"),
        ("acme_of_this_test.handlers", "handlers"),
    ],
)
def test_a_module_of_a_package_is_an_operator_with_what_it_imports(module: str, operator: str) -> None:
    for _ in range(2):  # as a second command in one process loads it
        [loaded] = load_operators([found(module)])
        assert (loaded.name, "made" in loaded.views) == (operator, True)


def test_a_folder_in_a_package_is_the_package_that_it_is_to_python(project: Path) -> None:
    [loaded] = load_operators([project / "acme_of_this_test/handlers"])
    assert loaded.name == "handlers"


@pytest.mark.parametrize("option", [["-m", "acme_of_this_test.main"], ["--module=acme_of_this_test.main"]])
def test_every_command_takes_a_module_where_it_takes_files(option: list[str]) -> None:
    printed = CliRunner().invoke(app, ["rbac", *option])
    assert "name: levelog-main-ingest" in printed.output


def test_manifests_bring_the_whole_package(project: Path) -> None:
    options = ["-m", "acme_of_this_test.main", "--image", "acme:1", "--output", "written"]
    assert CliRunner().invoke(app, ["manifests", *options]).exit_code == 0
    [deployment, *_] = yaml.safe_load_all((project / "written/base/process.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["process", "/operators/acme_of_this_test/main.py"]
    [mounted] = [each["configMap"]["items"] for each in pod["volumes"] if each["name"] == "operators"]
    assert sorted(item["path"] for item in mounted) == sorted(FILES)


def test_a_module_that_is_nowhere_is_refused() -> None:
    refused = CliRunner().invoke(app, ["run", "-m", "acme_of_this_test.none"])
    assert (refused.exit_code, "there is no such module here" in refused.output) == (2, True)


def test_an_installed_module_is_found_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a console script
    assert found("levelog_cli.demo.webs").name == "webs.py"
    assert [file_of(name) for name in ("no_such_module_of_this_test", "__main__", "sys")] == [None] * 3


def test_a_file_whose_folder_has_the_name_of_another_module_stands_for_itself(project: Path) -> None:
    folder = project / "json"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "shops.py").write_text(FILES["acme_of_this_test/handlers/teams.py"].replace("..words", "words"))
    (folder / "words.py").write_text("GREETING = 'hello'\n")
    package = package_of(folder / "shops.py")
    assert package is not None
    assert package.is_taken
    [loaded] = load_operators([folder / "shops.py"])
    assert loaded.name == "shops"
