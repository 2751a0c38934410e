"""Operator files: any Python file that holds an instance of Operator at module level."""

import difflib
import hashlib
import re
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, TracebackType

from levelog.errors import ConfigurationError, OperatorError
from levelog.operator import Operator


def load_operators(files: Sequence[Path]) -> list[Operator]:
    """Run the files and collect their operators, each once, in the order of files and definitions.

    While a file is loaded its folder can be imported from. Its module stays in `sys.modules` under a name of its own,
    so that the source of its functions and the names in their annotations are found.

    Raises ConfigurationError, naming file and line, for a file that cannot be read or run or holds no operator;
    OperatorError, naming both too, for one that defines something wrong.
    """
    operators: dict[int, Operator] = {}
    for file in dict.fromkeys(path.resolve() for path in files):
        shown = _shown(file)
        found = [value for value in vars(_load(file, shown)).values() if isinstance(value, Operator)]
        if not found:
            raise ConfigurationError(
                f'operator file {shown} defines no Operator: write op = Operator("…") at module level'
            )
        operators.update((id(operator), operator) for operator in found)
    return list(operators.values())


def _load(file: Path, shown: str) -> ModuleType:
    name = _module_name(file)
    loader = SourceFileLoader(name, str(file))
    spec = spec_from_loader(name, loader)
    if spec is None:
        raise ConfigurationError(f"operator file {shown} cannot be loaded")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(file.parent):
            loader.exec_module(module)
    except OperatorError as error:
        sys.modules.pop(name, None)
        raise OperatorError(f"{shown}, line {_line_in(file, error.__traceback__)}: {error}") from error
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise ConfigurationError(_sentence(file, shown, error)) from error
    return module


def _sentence(file: Path, shown: str, error: BaseException) -> str:
    """What went wrong while a file was loaded, and where."""
    match error:
        case FileNotFoundError(filename=name) if name == str(file):
            return f"operator file {shown} does not exist{_meant(file)}"
        case OSError(filename=name) if name == str(file):
            return f"operator file {shown} cannot be read: {error.strerror}"
        case SyntaxError():
            where = _shown(Path(error.filename)) if error.filename else shown
            text = f": {error.text.strip()}" if error.text else ""
            return f"operator file {where} has a syntax error in line {error.lineno or 1} ({error.msg}){text}"
        case _:
            line = _line_in(file, error.__traceback__)
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            return f"operator file {shown} failed in line {line} while being loaded: {what}"


def _meant(file: Path) -> str:
    """A file beside it that is named alike."""
    try:
        names = [path.name for path in file.parent.glob("*.py")]
    except OSError:
        return ""
    alike = difflib.get_close_matches(file.name, names, n=1)
    return f"; did you mean {_shown(file.parent / alike[0])}?" if alike else ""


def _line_in(file: Path, trace: TracebackType | None) -> int:
    """The line of the file that was running, also if it was a library that raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == str(file)]
    return (lines[-1] if lines else None) or 1


def _module_name(file: Path) -> str:
    """A name for the file's module that no installed module has, the same in each run."""
    stem = re.sub(r"\W", "_", file.stem)
    return f"levelog_operator_{stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


@contextmanager
def _importable(folder: Path) -> Generator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:  # the file may have changed it
            sys.path.remove(entry)


def _shown(file: Path) -> str:
    """The path as a person would write it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
