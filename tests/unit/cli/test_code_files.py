"""Which files count as changed, of those that an application is made of."""

import os
import sys
from pathlib import Path

from levelog_cli.editing.codefiles import CodeFiles, loaded_files
from levelog_cli.loading import load_operators


def changed(sources: CodeFiles) -> list[str]:
    """What two looks in a row find."""
    sources.changed()
    return [file.name for file in sources.changed()]


def test_only_what_was_loaded_counts_until_it_is_broken(tmp_path: Path) -> None:
    file, part, other = (tmp_path / name for name in ("shop.py", "parts.py", "test_shop.py"))
    for each in (file, part, other):
        each.write_text("")
    sources = CodeFiles([file])
    sources.mark()
    sources.follow([file, part], is_broken=False)
    other.write_text("x = 1")
    assert changed(sources) == []
    part.write_text("x = 1")
    assert changed(sources) == ["parts.py"]
    sources.mark()
    sources.follow([file], is_broken=True)
    assert changed(sources) == []
    (tmp_path / "absent.py").write_text("")
    other.write_text("")
    assert changed(sources) == ["absent.py", "test_shop.py"]


def test_a_file_that_changes_while_it_is_loaded_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    sources = CodeFiles([file])
    sources.mark()
    file.write_text("x = 1")
    sources.follow([file], is_broken=False)
    assert changed(sources) == ["shop.py"]


def test_a_change_counts_once_two_looks_find_the_same(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    sources = CodeFiles([file])
    sources.mark()
    sources.follow([file], is_broken=False)
    assert changed(sources) == []
    file.write_text("x = 1")
    assert sources.changed() == []
    file.write_text("x = 12")
    assert sources.changed() == []
    assert sources.changed() == [file]


def test_a_file_of_the_same_size_and_time_that_replaced_another_has_changed(tmp_path: Path) -> None:
    file, new = tmp_path / "shop.py", tmp_path / "new"
    file.write_text("x = 1")
    sources = CodeFiles([file])
    sources.mark()
    sources.follow([file], is_broken=False)
    new.write_text("x = 2")
    status = file.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(file)
    assert changed(sources) == ["shop.py"]


def test_a_new_file_of_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("")
    sources = CodeFiles([tmp_path])
    sources.mark()
    sources.follow([tmp_path / "shop.py"], is_broken=False)
    (tmp_path / "more.py").write_text("")
    assert changed(sources) == ["more.py"]


def test_files_that_are_loaded_are_those_of_the_folder(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib"
    packages.mkdir(parents=True)
    (packages / "library_for_sources.py").write_text("")
    (tmp_path / "part_for_sources.py").write_text("")
    file = tmp_path / "shop.py"
    file.write_text(
        f"import sys\nsys.path.append({str(packages)!r})\nimport json\nimport part_for_sources\n"
        "import library_for_sources\nsys.path.pop()\nfrom levelog import Operator\nop = Operator('shops')\n"
    )
    before = set(sys.modules)
    load_operators([file])
    assert [each.name for each in loaded_files([file], before)] == ["part_for_sources.py", "shop.py"]


def test_files_of_an_error_count_too(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    broken = tmp_path / "deep" / "broken_for_sources.py"
    broken.write_text("x = (\n")
    file = tmp_path / "shop.py"
    file.write_text("import deep.broken_for_sources\n")
    before, error = set(sys.modules), None
    try:
        load_operators([file])
    except Exception as raised:  # noqa: BLE001 - whatever it is
        error = raised
    assert error is not None
    assert broken in loaded_files([file], before, error)
