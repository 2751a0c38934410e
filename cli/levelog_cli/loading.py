"""Operator files: any Python file that holds an instance of Operator at module level, or a folder of such files."""

import difflib
import hashlib
import importlib
import logging
import re
import sys
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from msgspec import Struct

from levelog.kinds import expand
from levelog.operator import OPERATOR, Operator, loaded_into
from levelog.resources import ResourceBase
from levelog_base.errors import ConfigurationError, OperatorError
from levelog_base.wire.objects import Application
from levelog_cli.packages import Package, package_of
from levelog_cli.replacedlibraries import REPLACED
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_processors.program import Program

log = logging.getLogger(__name__)

_neighbours: Final[dict[Path, dict[str, ModuleType]]] = {}
"""What operator files have imported of their own folder, by that."""
_DATA: Final = (".yaml", ".yml", ".json", ".toml")
"""Files that stand beside operators, and are named for them by mistake."""


def load_operators(files: Sequence[Path]) -> list[Operator]:
    """Run the files and collect their operators, each once, in the order of files and definitions.

    A folder stands for its Python files, in the order of their names; with an `__init__.py` it is a package, whose
    modules import each other as such. While a file is loaded its folder can be imported from, and a file that was named
    too is one module for both: so `webs.py` may begin with `from shop import op`. Modules stay in `sys.modules` under
    names of their own, so that the source of functions and the names in their annotations are found; a file of a
    package is the module of its name, with relative imports.

    Raises ConfigurationError, naming file and line, for a file that cannot be read or run, for one that holds no
    operator, and for two operators of one name; OperatorError, naming both too, for one that defines something wrong.
    """
    loading = _Loading()
    operators: dict[int, Operator] = {}
    for file, values in loading.values(files):
        found = [value for value in values if isinstance(value, Operator)]
        libraries = {value.__name__ for value in values if isinstance(value, ModuleType)} & REPLACED.keys()
        write = "; ".join(REPLACED[name].instead for name in libraries) or 'write op = Operator("…") at module level'
        if found and libraries:  # as after an import of a submodule, which gives the name to the library again
            named = ", ".join(libraries)
            log.warning("%s imports %s too, whose decorators levelog does not see: %s", _shown(file), named, write)
        if not found:
            what = "folder" if file.is_dir() else "file"
            raise ConfigurationError(f"operator {what} {_shown(file)} defines no Operator: {write}")
        operators.update((id(operator), operator) for operator in found)
    loading.refuse_twins(list(operators.values()))
    return list(operators.values())


def load_classes(files: Sequence[Path]) -> list[type[ResourceBase]]:
    """Run the files as `load_operators` does and collect their classes of resources, each once, operator or not."""
    values = (value for _, values in _Loading().values(files) for value in values)
    classes = (value for value in values if isinstance(value, type) and issubclass(value, ResourceBase))
    return [cls for cls in dict.fromkeys(classes) if "resource_type" in vars(cls)]


class _SourceLoader(SourceFileLoader):
    """Runs a file as it is now: bytecode is taken for current if a file was saved twice within a second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Say that there is nothing to compare bytecode with, so that none is read nor written."""
        raise OSError(f"no bytecode of {path} is wanted")


class _Loading:
    """One call of `load_operators`: which file became which module."""

    def __init__(self) -> None:
        _forget_lent()
        self._before = set(sys.modules)
        self._modules: dict[Path, ModuleType] = {}
        self._packages: dict[Path, dict[str, Any]] = {}

    def values(self, files: Sequence[Path]) -> Iterator[tuple[Path, list[Any]]]:
        """The names that each file or folder defines at module level, or imports."""
        for file in dict.fromkeys(path.resolve() for path in files):
            modules = self.folder(file) if file.is_dir() else [self.file(file)]
            yield file, [value for module in modules for value in vars(module).values()]

    def folder(self, folder: Path) -> list[ModuleType]:
        files = sorted(file for file in folder.glob("*.py") if file.stem != "__main__")
        if not files:
            raise ConfigurationError(f"operator folder {_shown(folder)} holds no Python file")
        if not (folder / "__init__.py").exists():
            return [self.file(file) for file in files]
        parts = [(file, package_of(file)) for file in sorted(files, key=lambda file: file.stem != "__init__")]
        return [self._part(folder, file, package) for file, package in parts if package is not None]

    def file(self, file: Path) -> ModuleType:
        """Run a file, unless one that ran before has imported it."""
        if file.suffix in _DATA and file.exists():
            raise ConfigurationError(
                f"{_shown(file)} is no operator file: those are Python, and this is {file.suffix[1:]}"
            )
        module = self._modules.get(file) or self._imported(file)
        package = package_of(file) if module is None and file.is_file() else None
        if package is not None and not package.is_taken:
            return self._part(file.parent if file.stem == "__init__" else file, file, package)
        if module is None:
            name = _module_name(file)
            loader = _SourceLoader(name, str(file))
            spec = spec_from_loader(name, loader)
            if spec is None:
                raise ConfigurationError(f"operator file {_shown(file)} cannot be loaded")
            module = sys.modules[name] = self._modules[file] = module_from_spec(spec)
            try:
                with _telling(file), _importable(file.parent), self._named(file.parent), _taking(vars(module)):
                    loader.exec_module(module)
            except BaseException:
                sys.modules.pop(name, None)
                raise
        self._modules[file] = module
        return module

    def refuse_twins(self, operators: Sequence[Operator]) -> None:
        """Refuse different operators of one name, with the files that define them."""
        by_name: dict[str, Operator] = {}
        for operator in operators:
            other = by_name.setdefault(operator.name, operator)
            if other is operator:
                continue
            places = [next(self._homes(each), None) for each in (other, operator)]
            names = [_shown(place[0]) if place else "a file" for place in places]
            if places[0] and places[1] and places[0][0] == places[1][0] and places[0][1] != places[1][1]:
                raise ConfigurationError(
                    f"{names[0]} is imported under two names, {places[0][1]} and {places[1][1]}, so that its operator "
                    f"{operator.name!r} exists twice: import it under one name"
                )
            where = f"both in {names[0]}" if names[0] == names[1] else f"in {names[0]} and in {names[1]}"
            raise ConfigurationError(
                f"two operators are named {operator.name!r}, {where}; names are unique in an application"
            )

    def _part(self, given: Path, file: Path, package: Package) -> ModuleType:
        """Import a module of a package; what it declares is of the file or the folder that was given."""
        home = self._packages.setdefault(given, {"__file__": str(given)})
        with _telling(file), _importable(package.root), _taking(home):
            module = importlib.import_module(package.module)
        if Path(module.__file__ or "").resolve() != file:
            raise ConfigurationError(
                f"operator folder {_shown(file.parent)}: the module {package.module} is "
                f"{module.__file__ or 'built in'} already; give the folder another name"
            )
        if OPERATOR in home:  # also of a module that only imports those with handlers
            vars(module).setdefault(OPERATOR, home[OPERATOR])
        self._modules[file] = module
        return module

    def _imported(self, file: Path) -> ModuleType | None:
        """The module that a file has become since by an import."""
        return next((module for _, module in self._since() if _file_of(module) == file), None)

    def _since(self) -> Iterator[tuple[str, ModuleType]]:
        ours = {id(module) for module in self._modules.values()}
        return (
            (name, module)
            for name, module in list(sys.modules.items())
            if name not in self._before or id(module) in ours
        )

    def _homes(self, operator: Operator) -> Iterator[tuple[Path, str]]:
        """Files and modules that hold an operator, those that were given last."""
        given = {id(module): file for file, module in self._modules.items()}
        for name, module in sorted(self._since(), key=lambda each: id(each[1]) in given):
            file = _file_of(module)
            if file is not None and any(value is operator for value in list(vars(module).values())):
                yield file, name

    @contextmanager
    def _named(self, folder: Path) -> Generator[None]:
        """Let files of a folder that were loaded be imported by their own names, where no other module has those."""
        names = {file.stem: module for file, module in self._modules.items() if file.parent == folder}
        lent = {name: module for name, module in names.items() if name not in sys.modules}
        sys.modules.update(lent)
        try:
            yield
        finally:
            for name, module in lent.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]


@contextmanager
def _taking(names: dict[str, Any]) -> Generator[None]:
    """Have what imported modules declare for the operator of their file put among these names."""
    token = loaded_into.set(names)
    try:
        yield
    finally:
        loaded_into.reset(token)


@contextmanager
def _telling(file: Path) -> Generator[None]:
    """Turn what a file raises while it is loaded into a sentence."""
    try:
        yield
    except OperatorError as error:
        raise OperatorError(f"{_shown(file)}, line {_line_in(file, error.__traceback__)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(_sentence(file, _shown(file), error)) from error


def _file_of(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if isinstance(name, str) else None


def _sentence(file: Path, shown: str, error: BaseException) -> str:
    """The error that ended the loading of a file, and its place."""
    match error:
        case FileNotFoundError(filename=name) if name == str(file):
            return f"operator file {shown} does not exist{_meant(file)}"
        case OSError(filename=name) if name == str(file):
            return f"operator file {shown} cannot be read: {error.strerror}"
        case SyntaxError():
            where = _shown(Path(error.filename)) if error.filename else shown
            text = f": {error.text.strip()}" if error.text else ""
            return f"operator file {where} has a syntax error in line {error.lineno or 1} ({error.msg}){text}"
        case ModuleNotFoundError(name=str(name)) if name in REPLACED:
            line = _line_in(file, error.__traceback__)
            return (
                f"operator file {shown} imports {name} in line {line}, which is not installed: {REPLACED[name].instead}"
            )
        case ImportError() if "relative import" in str(error) and package_of(file) is None:
            return (
                f"operator file {shown} imports relatively, and {_shown(file.parent)} is no package: add an __init__.py"
            )
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
    """Let a folder be imported from; what files of other folders imported under the same names is set aside for it."""
    for other, modules in _neighbours.items():
        for name, module in modules.items():
            if other != folder and sys.modules.get(name) is module and _is_in(folder, name):
                del sys.modules[name]
    ours = _neighbours.setdefault(folder, {})
    sys.modules.update(ours)
    before = set(sys.modules)
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:  # the file may have changed it
            sys.path.remove(entry)
        ours.update((name, sys.modules[name]) for name in set(sys.modules) - before if _is_in(folder, name))


def _forget_lent() -> None:
    """Have modules run again that have put handlers into the operator of a file that was loaded before."""
    for modules in _neighbours.values():
        if any(OPERATOR in vars(module) for module in modules.values()):
            for name, module in modules.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
            modules.clear()


def _is_in(folder: Path, module: str) -> bool:
    name = module.partition(".")[0]
    return (folder / f"{name}.py").exists() or (folder / name).is_dir()


def _shown(file: Path) -> str:
    """The path as a person would write it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


class LoadedApplication(Struct, frozen=True):
    """A program and the name under which its state is kept."""

    name: Application
    program: Program


def load_application(settings: Settings, files: Sequence[Path]) -> LoadedApplication:
    """Load the operators; their application is named as the settings say, else as the first of them.

    Kinds that only a cluster can tell are those that were found last with the data directory. Raises ConfigurationError
    and OperatorError as `load_operators` does, and for operators that do not fit together.
    """
    operators = load_operators(files)
    if any(operator.open_selectors for operator in operators) and (kinds := DataDir(settings.data_dir).known_kinds()):
        expand(operators, kinds)
    return application_of(settings, operators)


def application_of(settings: Settings, operators: Sequence[Operator]) -> LoadedApplication:
    """The application of operators. Raises ConfigurationError and OperatorError for those that do not fit together."""
    program = Program(operators)
    program.max_backoff = timedelta(seconds=settings.max_backoff)
    return LoadedApplication(Application(settings.application or program.operators[0].name), program)
