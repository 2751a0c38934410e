"""What a function uses, by the source: definitions of its own module, and of other modules that are yours.

A module is yours if it is of the same package as the one that imports it, or is not installed: neither levelog nor part
of Python, nor in `site-packages`. Limit: what is looked up as the code runs (`getattr`, `importlib`) is not seen.
"""

import ast
import dis
import inspect
import site
import symtable
import sys
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, TypeAlias

Imports: TypeAlias = dict[str, tuple[str, str]]
"""Each name that an import gives, with the module and what of it; empty: the module itself."""

_INNER: Final = (ast.stmt, ast.ExceptHandler)
_LEVELOGS: Final = ("levelog", "levelog_testing")
INSTALLED: Final = [Path(path).resolve() for path in (*site.getsitepackages(), site.getusersitepackages())]


def reached_from(module: ModuleType | None, name: str) -> Sequence[str]:
    """Names and syntax of what a definition at the top of a module leads to, with itself; none if it is not there."""
    source = _source_of(module) if module is not None else None
    return _texts(source, frozenset({name})) if source is not None and name in source.definitions else ()


def reached_by(module: ModuleType | None, code: CodeType) -> Sequence[str]:
    """The same, of what byte code of a module leads to."""
    source = _source_of(module) if module is not None else None
    return _texts(source, _paths_of_code(code)) if source is not None else ()


@lru_cache(maxsize=1024)  # a handler is asked about for each of its views, effects and indices
def _texts(source: "ModuleSource", paths: frozenset[str]) -> tuple[str, ...]:
    """Neither name nor place of other modules count."""
    reached: dict[tuple[str, str], str] = {}
    seen = set[tuple[str, str]]()
    waiting = [(source, path) for path in paths]
    while waiting:
        place, path = waiting.pop()
        if (place.file, path) in seen:
            continue
        seen.add((place.file, path))
        name = path.partition(".")[0]
        if name in place.definitions:
            reached[place.file, name] = place.syntax(name)
            waiting += [(place, use) for use in place.uses(name)]
        waiting += place.elsewhere(path)
    ours = sorted((name, text) for (file, name), text in reached.items() if file == source.file)
    others = sorted((name, text) for (file, name), text in reached.items() if file != source.file)
    return tuple(part for pair in ours + others for part in pair)


class ModuleSource:
    """What a module defines and imports."""

    def __init__(self, file: str, name: str, package: str, text: str) -> None:
        self.file = file
        self._name = name
        self._package = package
        self.definitions: dict[str, list[ast.stmt]] = {}
        """What stands at the top of the module, by the names that it gives."""
        self._imports: Imports = {}
        self._stars: list[str] = []
        for node in _top(ast.parse(text).body):
            self._take(node)
        self._syntax: dict[str, str] = {}
        self._uses: dict[str, set[str]] = {}

    def syntax(self, name: str) -> str:
        """A definition, without comments and layout."""
        if name not in self._syntax:
            self._syntax[name] = "".join(map(ast.dump, self.definitions[name]))
        return self._syntax[name]

    def uses(self, name: str) -> set[str]:
        """Paths that a definition uses: names of the module, or of an import inside it, with their attributes."""
        if name not in self._uses:
            self._uses[name] = {path for node in self.definitions[name] for path in self._paths_in(name, node)}
        return self._uses[name]

    def elsewhere(self, path: str) -> Iterator[tuple["ModuleSource", str]]:
        """Where to look further for a path, if what it begins with is imported, also besides a definition."""
        if not path:  # the module as a whole
            yield from ((self, name) for name in self.definitions)
            return
        first, _, rest = path.partition(".")
        if first in self._imports:
            module, inner = self._imports[first]
            yield from self._in(module, ".".join(filter(None, (inner, rest))))
        elif first not in self.definitions:
            if self._package == self._name:
                yield from self._in(f"{self._name}.{first}", rest)
            for module in self._stars:
                yield from self._in(module, path)

    def _in(self, module: str, path: str) -> Iterator[tuple["ModuleSource", str]]:
        """A path in a module that this one imports, if that is yours."""
        family = module.partition(".")[0]
        if family in _LEVELOGS or family in sys.stdlib_module_names:
            return
        while (place := _place_of(module, self._root)) is None and path:  # a package without an __init__.py
            first, _, path = path.partition(".")
            module = f"{module}.{first}"
        is_family = family == self._name.partition(".")[0]
        if place is not None and (is_family or not any(place.is_relative_to(folder) for folder in INSTALLED)):
            package = module if place.stem == "__init__" else module.rpartition(".")[0]
            with suppress(OSError, SyntaxError, ValueError):  # Python says so to those who import it
                yield _source_in(place, module, package, place.stat().st_mtime_ns), path

    @property
    def _root(self) -> Path:
        """The folder that this module is imported from."""
        depth = self._package.count(".") + 1 if self._package else 0
        return Path(self.file).parents[depth]

    def _paths_in(self, name: str, node: ast.stmt) -> Iterator[str]:
        inner: Imports = {}
        for each in ast.walk(node):
            if isinstance(each, ast.Import | ast.ImportFrom):
                inner |= self._imports_of(each)
        roots = set(_globals(symtable.symtable(ast.unparse(node), "definition", "exec")))
        for path in _paths(node):
            root, dot, rest = path.partition(".")
            if root in inner:
                own = f"{name}:{root}"  # which no other definition has
                self._imports[own] = inner[root]
                yield f"{own}{dot}{rest}"
            elif root in roots:
                yield path

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._imports |= self._imports_of(node)
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _leave_out_pace(node)
                names = {node.name}
            case ast.ClassDef():
                names = {node.name}
            case ast.If() | ast.Try() | ast.With():  # the statements in it are taken by themselves
                heads = (each for each in ast.iter_child_nodes(node) if not isinstance(each, _INNER))
                names = {name for each in heads for name in _given(each)}
            case _:
                names = set(_given(node))
        for name in names:
            self.definitions.setdefault(name, []).append(node)

    def _imports_of(self, node: ast.Import | ast.ImportFrom) -> Imports:
        if isinstance(node, ast.Import):
            given = ((each.asname, each.name, each.name.partition(".")[0]) for each in node.names)
            return {alias or first: (name if alias else first, "") for alias, name, first in given}
        above = self._package.split(".")[: -node.level + 1 or None] if node.level else []
        module = ".".join([*above, *filter(None, [node.module])])
        self._stars += [module for each in node.names if each.name == "*"]
        return {each.asname or each.name: (module, each.name) for each in node.names if each.name != "*"}


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under conditions too."""
    for node in body:
        yield node
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top(getattr(node, inner, []))
        for handler in node.handlers if isinstance(node, ast.Try) else ():
            yield from _top(handler.body)


def _given(node: ast.AST) -> Iterator[str]:
    """Names that get a value in a statement, or a part of one: `LIMITS` of `LIMITS["few"] = 3`."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            return
        case ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.Attribute(value=value, ctx=ast.Store()) | ast.Subscript(value=value, ctx=ast.Store()):
            yield from (path.partition(".")[0] for path in _paths(value))
        case ast.comprehension(iter=iterated, ifs=ifs):  # its variables are its own
            for part in (iterated, *ifs):
                yield from _given(part)
            return
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _given(child)


def _paths(node: ast.AST) -> Iterator[str]:
    """Names, each with the attributes that are asked of it: `settings.LIMIT`."""
    asked: list[str] = []
    while isinstance(node, ast.Attribute):
        asked.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        yield ".".join([node.id, *reversed(asked)])
    for child in ast.iter_child_nodes(node):
        yield from _paths(child)


@lru_cache(maxsize=256)
def _paths_of_code(code: CodeType) -> frozenset[str]:
    return frozenset(_paths_in_code(code))


def _paths_in_code(code: CodeType) -> Iterator[str]:
    path = ""
    for step in dis.get_instructions(code):
        if path and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path += f".{step.argval}"
            continue
        if path:
            yield path
        path = str(step.argval) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _paths_in_code(constant)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a definition takes from its module: not its own fields, parameters and variables of the same names."""
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and symbol.is_global())
    for inner in table.get_children():
        yield from _globals(inner)


def _leave_out_pace(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Remove `max_concurrency=` from a function's decorators: it changes neither what a call does nor who is called."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            decorator.keywords = [each for each in decorator.keywords if each.arg != "max_concurrency"]


@lru_cache(maxsize=64)
def _source_of(module: ModuleType) -> ModuleSource | None:
    """The source of a loaded module; None if it has none, as at a prompt."""
    try:
        text = inspect.getsource(module)
    except (OSError, TypeError):
        return None
    file = str(Path(getattr(module, "__file__", None) or module.__name__).resolve())
    return ModuleSource(file, module.__name__, module.__package__ or "", text)


@lru_cache(maxsize=256)
def _source_in(file: Path, name: str, package: str, changed_ns: int) -> ModuleSource:  # noqa: ARG001
    """The source of a file as it is since a moment. Raises OSError, SyntaxError, ValueError."""
    with tokenize.open(file) as lines:
        return ModuleSource(str(file), name, package, lines.read())


def _place_of(module: str, root: Path) -> Path | None:
    """The file of a module: in the folder that the one who imports it is imported from, or where it was loaded from."""
    beside = _found(module, [str(root)])
    if beside is None and module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None)
        return Path(file).resolve() if file else None
    return beside or _found(module, sys.path)


def _found(module: str, folders: Sequence[str]) -> Path | None:
    parts = module.split(".")
    origin = None
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), list(folders))
        if spec is None:
            return None
        origin = spec.origin if spec.has_location else None
        folders = list(spec.submodule_search_locations or ())
    return Path(origin).resolve() if origin else None
