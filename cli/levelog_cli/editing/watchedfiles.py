"""Files that change while a command runs: those that it is told of, and all that an application may be made of.

They are looked at again and again: a mounted folder of a container sends no notifications, and a few files cost
nothing to look at.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

from levelog_cli.packages import package_of

_TESTS: Final = ("test_*.py", "conftest.py")


class _Stamp(NamedTuple):
    """What saving changes of a file."""

    modified: int
    """Nanoseconds."""
    inode: int
    size_bytes: int


class WatchedFiles:
    """How the files were when they were taken in; `find` tells which there are now."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        self._find = find
        self._before: dict[Path, _Stamp | None] = {}
        self._seen: dict[Path, _Stamp | None] | None = None

    def mark(self) -> None:
        """Take the files as they are now for those that are taken in next."""
        self._before = self._stamps()
        self._seen = None

    def changed(self) -> list[Path]:
        """The files that differ from what was taken in, once two looks in a row find the same: a save takes a while."""
        now = self._stamps()
        is_at_rest, self._seen = now == self._seen, now
        counting = {*now, *self._before} if is_at_rest else set[Path]()
        return sorted(file for file in counting if now.get(file) != self._before.get(file))

    def _stamps(self) -> dict[Path, _Stamp | None]:
        return {file: _stamp_of(file) for file in self._find()}


def code_files(files: Sequence[Path]) -> WatchedFiles:
    """The files of the operators' folders, and of the packages in these; but tests."""
    given = [file.resolve() for file in files if not file.is_dir()]
    folders = {_edited_folder(file.resolve()) for file in files}
    return WatchedFiles(lambda: [*given, *(file for folder in folders for file in _files_in(folder))])


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


def _stamp_of(file: Path) -> _Stamp | None:
    """None if no file can be looked at there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return _Stamp(status.st_mtime_ns, status.st_ino, status.st_size)
