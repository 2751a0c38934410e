"""The Python files that an application may be made of, and whether any of them has changed since it was loaded.

They are looked at again and again: a mounted folder of a container sends no notifications, and a few files cost
nothing to look at.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

from levelog_cli.packages import package_of

_TESTS: Final = ("test_*.py", "conftest.py")


class Stamp(NamedTuple):
    """The stamp of a file: saving changes it."""

    modified: int
    """Nanoseconds."""
    inode: int
    size_bytes: int


class CodeFiles:
    """How the files of the operators' folders, and of the packages in these, were when they were loaded; but tests."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._given = [file.resolve() for file in files if not file.is_dir()]
        self._folders = {_edited_folder(file.resolve()) for file in files}
        self._before: dict[Path, Stamp | None] = {}
        self._seen: dict[Path, Stamp | None] | None = None

    def mark(self) -> None:
        """Take the files as they are now for those that are loaded next."""
        self._before = self._stamps()
        self._seen = None

    def changed(self) -> list[Path]:
        """The files that differ from what was loaded, once two looks in a row find the same: a save takes a while."""
        now = self._stamps()
        is_at_rest, self._seen = now == self._seen, now
        counting = {*now, *self._before} if is_at_rest else set[Path]()
        return sorted(file for file in counting if now.get(file) != self._before.get(file))

    def _stamps(self) -> dict[Path, Stamp | None]:
        beside = (file for folder in self._folders for file in _files_in(folder))
        return {file: stamp_of(file) for file in (*self._given, *beside)}


def _edited_folder(given: Path) -> Path:
    """The folder whose files are edited: that of the whole package."""
    package = package_of(given / "__init__.py" if given.is_dir() else given)
    return package.root / package.module.partition(".")[0] if package else given if given.is_dir() else given.parent


def _files_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as found:  # it may go meanwhile, or be for others
        for entry in found:
            path = folder / entry.name
            if path.suffix == ".py" and not any(fnmatch(entry.name, pattern) for pattern in _TESTS):
                yield path
            elif entry.is_dir(follow_symlinks=False) and os.access(path / "__init__.py", os.F_OK):
                yield from _files_in(path)


def stamp_of(file: Path) -> Stamp | None:
    """The stamp of a file now; None if it is not there."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_mtime_ns, status.st_ino, status.st_size)
