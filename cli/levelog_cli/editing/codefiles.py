"""The files that an application is made of, and whether any of them has changed since it was loaded.

They are looked at again and again: a mounted folder of a container sends no notifications, and a few files cost
nothing to look at.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from levelog_cli.packages import package_of

_FOREIGN: Final = ("site-packages", "node_modules", "__pycache__")
"""Folders in a folder of operators whose files are not edited there."""


class Stamp(NamedTuple):
    """The stamp of a file: saving changes it."""

    modified: int
    """Nanoseconds."""
    inode: int
    size_bytes: int


class CodeFiles:
    """Which files count, and how each was when the application was loaded from them.

    While the code is broken, every Python file beside the given ones counts too: it may lack one that is not there yet.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._given = [file.resolve() for file in files]
        self._loaded: frozenset[Path] = frozenset()
        self._is_broken = True
        self._before: dict[Path, Stamp | None] = {}
        self._seen: dict[Path, Stamp | None] | None = None

    def mark(self) -> None:
        """Take the files as they are now for those that are loaded next."""
        self._before = self._stamps()
        self._seen = None

    def follow(self, loaded: Iterable[Path], *, is_broken: bool) -> None:
        """Take note of what was loaded since `mark`; what has changed in between counts as changed."""
        found = frozenset(loaded)
        self._is_broken = is_broken
        self._before |= {file: stamp_of(file) for file in found - self._loaded if file not in self._beside()}
        self._loaded = self._loaded | found if is_broken else found

    def changed(self) -> list[Path]:
        """The files that differ from what was loaded, once two looks in a row find the same: a save takes a while."""
        now = self._stamps()
        is_at_rest, self._seen = now == self._seen, now
        counting = {*now, *self._before} if self._is_broken else self._loaded | self._of_folders()
        return sorted(file for file in counting if now.get(file) != self._before.get(file)) if is_at_rest else []

    def _of_folders(self) -> set[Path]:
        """All files of the folders that are given, and the files that are."""
        files = {file for file in self._given if not file.is_dir()}
        return files | {file for folder in self._given if folder not in files for file in folder.glob("*.py")}

    def _beside(self) -> set[Path]:
        folders = {file if file.is_dir() else file.parent for file in self._given}
        return {file for folder in folders for file in folder.glob("*.py")}

    def _stamps(self) -> dict[Path, Stamp | None]:
        return {file: stamp_of(file) for file in (*self._loaded, *self._beside(), *self._of_folders())}


def loaded_files(files: Sequence[Path], before: Collection[str], error: BaseException | None = None) -> list[Path]:
    """Files in the folders of operators that modules were loaded from since `before`, and those that an error names."""
    folders = {_edited_folder(file.resolve()) for file in files}
    modules = [module for name, module in list(sys.modules.items()) if name not in before]
    named = [getattr(module, "__file__", None) for module in modules] + list(_named(error))
    found = {Path(name).resolve() for name in named if name and name.endswith(".py")}
    return sorted(file for file in found if any(_is_edited(file, folder) for folder in folders))


def _edited_folder(given: Path) -> Path:
    """The folder whose files are edited: that of the whole package."""
    package = package_of(given / "__init__.py" if given.is_dir() else given)
    return package.root / package.module.partition(".")[0] if package else given if given.is_dir() else given.parent


def _is_edited(file: Path, folder: Path) -> bool:
    if not file.is_relative_to(folder):
        return False
    parts = file.relative_to(folder).parts
    return not any(part.startswith(".") or part in _FOREIGN for part in parts)


def _named(error: BaseException | None) -> Iterator[str]:
    """Files that were running, or read, when an error or one that led to it was raised."""
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename:
            yield error.filename
        trace = error.__traceback__
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


def stamp_of(file: Path) -> Stamp | None:
    """The stamp of a file now; None if it is not there."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_mtime_ns, status.st_ino, status.st_size)
