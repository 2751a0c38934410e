"""Which files count as changed, of those that an application is made of."""

import os
from pathlib import Path

from levelog_cli.editing.watchedfiles import WatchedFiles, code_files


def changed(sources: WatchedFiles) -> list[str]:
    """What two looks in a row find."""
    sources.changed()
    return [file.name for file in sources.changed()]


def test_files_of_the_folder_and_of_packages_in_it_count_but_no_tests_and_no_libraries(tmp_path: Path) -> None:
    sources = code_files([tmp_path / "shop.py"])
    (tmp_path / "again").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "parts", tmp_path / ".venv"):
        folder.mkdir(exist_ok=True)
        for name in ("shop.py", "test_shop.py", "conftest.py"):
            (folder / name).write_text("")
    (tmp_path / "parts/__init__.py").write_text("")
    assert sources.changed() == []
    assert sources.changed() == [tmp_path / "parts/__init__.py", tmp_path / "parts/shop.py", tmp_path / "shop.py"]
    sources.mark()
    (tmp_path / "parts/shop.py").unlink()
    assert changed(sources) == ["shop.py"]


def test_a_file_that_changes_while_it_is_loaded_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    sources = code_files([file])
    sources.mark()
    file.write_text("x = 1")
    assert changed(sources) == ["shop.py"]


def test_a_change_counts_once_two_looks_find_the_same(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    sources = code_files([file])
    sources.mark()
    assert changed(sources) == []
    file.write_text("x = 1")
    assert sources.changed() == []
    file.write_text("x = 12")
    assert sources.changed() == []
    assert sources.changed() == [file]


def test_a_file_whose_folder_became_a_file_is_gone_until_it_is_there_again(tmp_path: Path) -> None:
    file = tmp_path / "objects/first.yaml"
    file.parent.mkdir()
    file.write_text("")
    sources = WatchedFiles(lambda: [file])
    sources.mark()
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("")
    assert changed(sources) == ["first.yaml"]
    sources.mark()
    file.parent.unlink()
    file.parent.mkdir()
    file.write_text("")
    assert changed(sources) == ["first.yaml"]


def test_a_file_of_the_same_size_and_time_that_replaced_another_has_changed(tmp_path: Path) -> None:
    file, new = tmp_path / "shop.py", tmp_path / "new"
    file.write_text("x = 1")
    sources = code_files([file])
    sources.mark()
    new.write_text("x = 2")
    status = file.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(file)
    assert changed(sources) == ["shop.py"]


def test_all_of_the_package_counts_that_a_file_is_in_and_the_file_whatever_its_name(tmp_path: Path) -> None:
    for name in ("__init__.py", "deep/__init__.py", "deep/test_shop.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).write_text("")
    sources = code_files([tmp_path / "package/deep/test_shop.py"])
    assert changed(sources) == ["__init__.py", "__init__.py", "test_shop.py"]
