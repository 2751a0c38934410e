"""Handlers in modules that a Kopf file imports, which Kopf has in the one registry of a process."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from levelog import Operator
from levelog.compat import kopf
from levelog.testing import Simulation
from levelog_cli.loading import load_operators
from rigs.kopffiles import shop

KOPF = "from levelog.compat import kopf\n"
THINGS = """
told = []

@kopf.index("example.com", "v1", "shops")
def shops(name, **_):
    return {name: name}

@kopf.on.create("example.com", "v1", "shops", id="made-in-things")
def made(name, memo, settings, shops: kopf.Index, **_):
    told.append((name, getattr(memo, "seen", None), sorted(shops)))
"""
OWN = """
@kopf.on.startup()
def begin(memo, **_):
    memo.seen = True

@kopf.on.create("example.com", "v1", "shops", id="own")
def own(**_):
    pass
"""
MAINS = {
    "import": "from handlers import things\n",
    "both": f"from handlers import things\n{OWN}",
    "function": f"from handlers.things import made\n{OWN}",
    "by_name": f"import importlib\nfor name in ['things']:\n    importlib.import_module(f'handlers.{{name}}')\n{OWN}",
    "deeper": "import opr_of_this_test.main\n",
}


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, source: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(KOPF + dedent(source))
    return file


def project(folder: Path, main: str) -> Path:
    write(folder, "handlers/__init__.py", "")
    write(folder, "handlers/things.py", THINGS)
    write(folder, "opr_of_this_test/__init__.py", "")
    write(folder, "opr_of_this_test/main.py", "from handlers import things\n" + OWN)
    return write(folder, "main.py", main)


def called(operator: Operator) -> list[object]:
    """What the handler of the module is called with."""
    made = operator.effects["made_in_things_handled"].origin
    with Simulation(operator) as simulation:
        simulation.call_through(made)
        simulation.apply(shop("a"))
        simulation.run()
    found: list[object] = list(made.__globals__["told"])
    made.__globals__["told"].clear()
    return found


@pytest.mark.parametrize("main", MAINS)
def test_handlers_of_imported_modules_are_in_the_operator_of_the_file(tmp_path: Path, main: str) -> None:
    [operator] = load_operators([project(tmp_path, MAINS[main])])
    assert operator.name == "main"
    assert ("own" in operator.views) is (main != "import")
    assert called(operator) == [("a", True if main != "import" else None, ["a"])]


def test_a_file_that_is_loaded_again_has_them_again(tmp_path: Path) -> None:
    main, other = project(tmp_path, MAINS["both"]), write(tmp_path, "other.py", MAINS["import"])
    for file in (main, main, other):
        [operator] = load_operators([file])
        assert operator.name == file.stem
        assert called(operator) == [("a", True if file == main else None, ["a"])]


def test_two_files_that_import_one_module_have_its_handlers_once(tmp_path: Path) -> None:
    main, other = project(tmp_path, MAINS["both"]), write(tmp_path, "other.py", MAINS["import"] + OWN)
    operators = load_operators([main, other])
    assert [(each.name, "made_in_things" in each.views) for each in operators] == [("main", True), ("other", False)]


def test_a_file_that_another_one_has_imported_may_be_given_too(tmp_path: Path) -> None:
    things = write(tmp_path, "things_of_this_test.py", THINGS)
    main = write(tmp_path, "main.py", "import things_of_this_test")
    assert [each.name for each in load_operators([main, things])] == ["main"]


def test_the_modules_of_a_package_are_one_operator_of_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "package_of_this_test"
    write(folder, "__init__.py", "")
    write(folder, "begins.py", OWN)
    write(folder, "things.py", THINGS)
    [operator] = load_operators([folder])
    assert operator.name == "package-of-this-test"
    assert {"own", "made_in_things"} <= operator.views.keys()


def test_a_handler_that_a_decorator_of_another_module_wraps_is_in_the_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        "wrapping_of_this_test.py",
        """
        import functools

        def wrapped(function):
            @functools.wraps(function)
            def around(**kwargs):
                return function(**kwargs)
            return around
        """,
    )
    source = OWN.replace("def own", "@wrapped\ndef own")
    [operator] = load_operators([write(tmp_path, "main.py", f"from wrapping_of_this_test import wrapped\n{source}")])
    assert (operator.name, "own" in operator.views) == ("main", True)


def test_it_is_not_in_another_file_that_uses_the_same_decorator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapping = "import functools\ndef wrapped(function): return functools.wraps(function)(lambda **kwargs: None)\n"
    write(tmp_path, "wrapping_two_of_this_test.py", wrapping)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first", "second"):
        source = OWN.replace('"own"', repr(name)).replace("def own", "@wrapped\ndef own")
        write(tmp_path, f"{name}_of_this_test.py", f"from wrapping_two_of_this_test import wrapped\n{source}")
        found = kopf.operator_in(import_module(f"{name}_of_this_test"))
    assert [name for name in ("first", "second") if name in found.views] == ["second"]


@pytest.mark.parametrize(
    ("main", "is_imported_before"),
    [*((main, False) for main in MAINS), ("import", True), ("both", True), ("function", True)],
)
def test_the_operator_of_an_imported_file_has_them_in_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str, is_imported_before: bool
) -> None:
    project(tmp_path, MAINS[main])
    monkeypatch.syspath_prepend(tmp_path)
    if is_imported_before:
        import_module("handlers.things")
    operator = kopf.operator_in(import_module("main"))
    assert operator.name == "main"
    assert called(operator) == [("a", True if main != "import" else None, ["a"])]
