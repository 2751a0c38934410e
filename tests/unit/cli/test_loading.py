"""Operator files: what is found in them, and what is said of wrong ones."""

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from levelog_base.errors import ConfigurationError, OperatorError
from levelog_cli.demo.playing import followed
from levelog_cli.loading import load_operators

OPERATOR = """
from levelog import Level, Operator, Resource, Struct

op = Operator("{name}")

class Spec(Struct):
    size: int = 0

class Box(Resource, group="example.com", version="v1", plural="boxes"):
    spec: Spec

@op.view
def full(box: "Box") -> Level[int]:
    return Level(desired=box.spec.size, actual=0)
"""

MORE = """
from levelog import Level
from {module} import Box, op

@op.view
def half(box: Box) -> Level[int]:
    return Level(desired=box.spec.size, actual=0)
"""


@pytest.fixture(autouse=True)
def modules_are_as_before() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "_of_this_test" in name:
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def refusal(file: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_operators([file])
    return str(refused.value)


def test_operators_of_several_files_come_in_order_and_each_once(tmp_path: Path) -> None:
    first = write(tmp_path, "first.py", OPERATOR.format(name="first") + "other = Operator('other')\nalias = op\n")
    second = write(tmp_path, "second.py", OPERATOR.format(name="second"))
    assert [operator.name for operator in load_operators([first, second, first])] == ["first", "other", "second"]


def test_an_operator_that_two_files_share_is_found_once(tmp_path: Path) -> None:
    write(tmp_path, "shared_operator_of_this_test.py", OPERATOR.format(name="shared"))
    one = write(tmp_path, "one.py", "from shared_operator_of_this_test import op\n")
    two = write(tmp_path, "two.py", "from shared_operator_of_this_test import op\n")
    assert [operator.name for operator in load_operators([one, two])] == ["shared"]


def test_files_of_the_same_name_do_not_replace_each_other(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "operator.py", OPERATOR.format(name="one"))
    two = write(tmp_path / "two", "operator.py", OPERATOR.format(name="two"))
    operators = load_operators([one, two])
    assert [operator.name for operator in operators] == ["one", "two"]
    assert len({operator.views["full"].function.__module__ for operator in operators}) == 2


def test_the_source_of_handlers_is_found_so_that_a_comment_does_not_change_their_fingerprint(tmp_path: Path) -> None:
    plain = write(tmp_path, "plain.py", OPERATOR.format(name="box"))
    commented = write(
        tmp_path, "commented.py", OPERATOR.format(name="box").replace("    return", "    # why\n    return")
    )
    other = write(tmp_path, "other.py", OPERATOR.format(name="box").replace("actual=0", "actual=1"))
    views = [load_operators([file])[0].views["full"] for file in (plain, commented, other)]
    assert "actual=0" in inspect.getsource(views[0].function)
    assert views[0].fingerprint == views[1].fingerprint != views[2].fingerprint


USING = """
from levelog import Level
from shared import {name}
from boxes import Box, op
op.name = {name}

@op.view
def rated(box: Box) -> Level[int]:
    return Level(desired={name}, actual=0)
"""


@pytest.mark.parametrize("is_together", [True, False], ids=["together", "apart"])
def test_files_of_several_folders_import_their_own_neighbours(
    tmp_path_factory: pytest.TempPathFactory, *, is_together: bool
) -> None:
    """As an operator and its older version do, which `levelog replay --against` compares."""
    files: list[Path] = []
    for name in ("a", "b"):
        folder = tmp_path_factory.mktemp("together" if is_together else "apart")
        write(folder, "boxes.py", OPERATOR.format(name="boxes"))
        write(folder, "shared.py", f"NAME = {name!r}\n")
        files.append(write(folder, "rates.py", USING.format(name="NAME")))
    old, new = load_operators(files) if is_together else [load_operators([file])[0] for file in files]
    assert (old.name, new.name) == ("a", "b")
    assert old.views["rated"].fingerprint != new.views["rated"].fingerprint
    more = write(files[0].parent, "more.py", MORE.format(module="boxes"))
    assert load_operators([more]) == [old]


def test_a_file_saved_again_at_once_runs_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    times = (1_800_000_000, 1_800_000_000)
    for name in ("one", "two"):
        file = write(tmp_path, "box.py", OPERATOR.format(name=name))
        os.utime(file, times)
        assert [operator.name for operator in load_operators([file])] == [name]
    assert not (tmp_path / "__pycache__").exists()


def test_the_folder_of_a_file_can_be_imported_from_only_while_it_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, "neighbour_of_this_test.py", "NAME = 'neighbour'\n")
    file = write(tmp_path, "file.py", "from neighbour_of_this_test import NAME\n" + OPERATOR.format(name="x"))
    load_operators([file])
    assert str(tmp_path) not in sys.path


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.py") == f"operator file {tmp_path / 'none.py'} does not exist"


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"operator folder {tmp_path} holds no Python file"


SHOP = OPERATOR.format(name="shop")
FILES = {"shop_of_this_test.py": SHOP, "more_of_this_test.py": MORE.format(module="shop_of_this_test")}
PACKAGE = {"__init__.py": "", "shop.py": SHOP, "half.py": MORE.format(module=".shop")}


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ({**FILES, "words.py": "NAME = 'no operator here'\n"}, ["."]),
        ({f"package_of_this_test/{name}": text for name, text in PACKAGE.items()}, ["package_of_this_test"]),
        (FILES, [*FILES]),
        (FILES, [*reversed(FILES)]),
        ({**FILES, "main.py": "import more_of_this_test\nfrom shop_of_this_test import op\n"}, ["main.py"]),
    ],
    ids=["a folder", "a package", "files", "files in another order", "a main file that imports the others"],
)
def test_an_operator_may_be_spread_over_files(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], given: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("spread")  # of no other test: modules are kept by their folder
    for name, text in files.items():
        write(folder, name, text)
    [op] = load_operators([folder / name for name in given])
    assert sorted(op.views) == ["full", "half"]


def test_two_operators_of_one_name_are_refused_with_both_files(tmp_path: Path) -> None:
    one = write(tmp_path, "one.py", OPERATOR.format(name="shop"))
    two = write(tmp_path, "two.py", OPERATOR.format(name="shop"))
    with pytest.raises(ConfigurationError) as refused:
        load_operators([one, two])
    assert str(refused.value) == (
        f"two operators are named 'shop', in {one} and in {two}; names are unique in an application"
    )


def test_a_file_that_is_imported_under_two_names_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "twice_of_this_test"
    write(folder, "__init__.py", "")
    shop = write(folder, "shop_twice_of_this_test.py", OPERATOR.format(name="shop"))
    main = write(
        tmp_path,
        "main.py",
        "import sys\nfrom twice_of_this_test.shop_twice_of_this_test import op\n"
        f"sys.path.insert(0, {str(folder)!r})\nfrom shop_twice_of_this_test import op as other\n",
    )
    try:
        said = refusal(main)
    finally:
        sys.path.remove(str(folder))
    assert said == (
        f"{shop} is imported under two names, twice_of_this_test.shop_twice_of_this_test and shop_twice_of_this_test, "
        "so that its operator 'shop' exists twice: import it under one name"
    )


def test_a_file_in_the_working_directory_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(Path("none.py")) == "operator file none.py does not exist"


def test_a_syntax_error_in_an_imported_neighbour_names_the_neighbour(tmp_path: Path) -> None:
    neighbour = write(tmp_path, "wrong_neighbour_of_this_test.py", "if True\n")
    file = write(tmp_path, "file.py", "import wrong_neighbour_of_this_test\n")
    assert refusal(file).startswith(f"operator file {neighbour} has a syntax error in line 1 (")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("half.py", MORE.format(module=".shop"), "imports relatively, and {folder} is no package: add an __init__.py"),
        ("wrong.py", "import os\n\nop = = 3\n", "has a syntax error in line 3 (invalid syntax): op = = 3"),
        ("binary.py", b"op = '\xff'\n", "has a syntax error in line 1"),
        ("binary.py", b"op = 1\x00\n", "has a syntax error in line 1"),
        ("empty.py", "from levelog import Operator\n", 'defines no Operator: write op = Operator("…") at module level'),
        (
            "raises.py",
            "import json\n\njson.loads('nonsense')\n",
            "failed in line 3 while being loaded: JSONDecodeError: ",
        ),
        ("lacks.py", "\nimport no_such\n", "failed in line 2 while being loaded: ModuleNotFoundError: No module named"),
        ("exits.py", "import sys\nsys.exit(3)\n", "failed in line 2 while being loaded: SystemExit: 3"),
        ("crd.yaml", "apiVersion: v1", "is no operator file: those are Python, and this is yaml"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    sentence = refusal(file)
    assert sentence.removeprefix("operator file ").startswith(f"{file} {said.format(folder=tmp_path)}")
    assert "\n" not in sentence


def test_an_operator_error_names_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path, "handlers.py", OPERATOR.format(name="x") + "\n@op.index\ndef bad():\n    pass\n")
    with pytest.raises(
        OperatorError, match=r"handlers.py, line \d+: index bad: takes no parameter; the first one is its object$"
    ):
        load_operators([file])


def test_a_mistyped_file_is_answered_with_the_one_that_is_named_like_it(tmp_path: Path) -> None:
    write(tmp_path, "webs.py", OPERATOR.format(name="webs"))
    assert refusal(tmp_path / "web.py").endswith(f"web.py does not exist; did you mean {tmp_path / 'webs.py'}?")
    assert refusal(tmp_path / "zzz.py").endswith("zzz.py does not exist")


def test_a_file_that_was_refused_can_be_loaded_when_it_is_mended(tmp_path: Path) -> None:
    file = write(tmp_path, "mended.py", "op = 1 / 0\n")
    before = set(sys.modules)
    refusal(file)
    assert {name for name in set(sys.modules) - before if name.startswith("levelog_operator_")} == set()
    file.write_text(OPERATOR.format(name="mended"))
    assert [operator.name for operator in load_operators([file])] == ["mended"]


def test_a_file_that_gives_the_name_of_kopf_to_kopf_again_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = ModuleType("kopf")
    monkeypatch.setitem(sys.modules, "kopf", real)
    monkeypatch.setitem(sys.modules, "kopf.cli", ModuleType("kopf.cli"))
    file = write(tmp_path, "teams.py", OPERATOR.format(name="teams") + "\nimport kopf.cli\n")
    load_operators([file])
    assert "teams.py imports kopf too, whose decorators levelog does not see" in caplog.text


def test_a_file_that_imports_kopf_is_told_what_to_import_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "teams.py", "import sys\nimport kopf\n")
    instead = "write `from levelog.compat import kopf` in place of `import kopf` and `import kopf.cli`"
    monkeypatch.setitem(sys.modules, "kopf", None)
    assert refusal(file) == f"operator file {file} imports kopf in line 2, which is not installed: {instead}"
    monkeypatch.setitem(sys.modules, "kopf", ModuleType("kopf"))
    assert refusal(file) == f"operator file {file} defines no Operator: {instead}"


@pytest.mark.parametrize("is_text", [False, True], ids=["a link", "a link as git writes it where it makes none"])
def test_the_operator_of_the_demo_is_found_in_any_checkout(tmp_path: Path, *, is_text: bool) -> None:
    write(tmp_path, "webs.py", OPERATOR.format(name="webs"))
    link = tmp_path / "demo" / "webs.py"
    link.parent.mkdir()
    if is_text:
        link.write_text("../webs.py")
    else:
        link.symlink_to("../webs.py")
    assert [each.name for each in load_operators([followed(link)])] == ["webs"]
