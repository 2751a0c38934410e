"""Fingerprints: a digest of a function's code, what it uses from its module, and its types."""

import ast
import dis
import inspect
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache, partial
from types import CodeType, ModuleType
from typing import Any, TypeAlias

import msgspec

from levelog.wire.canonical import canonical, digest

Definition: TypeAlias = tuple[str, frozenset[str]]
"""Of one name at the top of a module: the syntax, and the names that it uses of others."""


def fingerprint(function: Callable[..., Any]) -> str:
    """Digest of the function and of what it uses from its own module.

    Comments and layout do not count. Other modules count by name only: if a library that a handler imports changes,
    change the handler too.
    """
    module = inspect.getmodule(function)
    definitions = _definitions(module) if module is not None else {}
    if _is_in(function, definitions):
        reached = _reached([function.__name__], definitions)
        return digest(*(part for name in sorted(reached) for part in (name, reached[name])))
    # Defined inside a function or typed at a prompt: its byte code has to do, with what it encloses.
    code = getattr(function, "__code__", None)
    if code is None:
        return digest(_qualified(function if isinstance(function, type) else type(function)))
    reached = _reached(_names(code), definitions)
    return digest(
        function.__name__,
        *_compiled(code),
        *_enclosed(function),
        *(part for name in sorted(reached) for part in (name, reached[name])),
    )


def type_fingerprint(hint: Any) -> str:
    """Digest of how values of a type are decoded: fields with their types and defaults, nested ones too.

    What has no schema counts by its name.
    """
    try:
        return digest(canonical(msgspec.json.schema(hint, schema_hook=lambda unknown: {"type": _qualified(unknown)})))
    except (TypeError, ValueError, msgspec.MsgspecError):
        return digest(_qualified(hint))


def class_fingerprint(cls: Any) -> str:
    """Digest of how a Resource class decodes objects, and of which: also one of another module."""
    return digest(type_fingerprint(cls), canonical(cls.resource_type), fingerprint(cls))


def value_fingerprint(value: object) -> str:
    """Digest of a handler's option: plain values by content, functions by their code, anything else by its type."""
    match value:
        case None | str() | bytes() | int() | float():
            return digest(type(value).__name__, repr(value))
        case Enum():
            return digest(_qualified(type(value)), value.name)
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return digest(_qualified(type(value)), value_fingerprint(fields))
        case Mapping():
            pairs = sorted((repr(key), value_fingerprint(each)) for key, each in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return digest("mapping", *(part for pair in pairs for part in pair))
        case Set():
            return digest("set", *sorted(map(value_fingerprint, value)))  # pyright: ignore[reportUnknownArgumentType]
        case tuple() | list():
            return digest("sequence", *map(value_fingerprint, value))  # pyright: ignore[reportUnknownArgumentType]
        case partial():
            return digest(*map(value_fingerprint, (value.func, value.args, value.keywords)))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        case type():
            return digest(_qualified(value), fingerprint(value))
        case _ if callable(value):
            return fingerprint(value)
        case _:
            return digest(_qualified(type(value)))


def _qualified(cls: Any) -> str:
    """Name of a type without its module's, which for an operator file has to do with its path."""
    return str(getattr(cls, "__qualname__", type(cls).__qualname__))


def _is_in(function: Callable[..., Any], definitions: Mapping[str, Definition]) -> bool:
    name = getattr(function, "__qualname__", "")
    return name in definitions and name == getattr(function, "__name__", "")


def _reached(names: Iterable[str], definitions: Mapping[str, Definition]) -> dict[str, str]:
    """The definitions that names lead to, and the names in those, as text."""
    reached: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        found = definitions.get(name)
        if found is None or name in reached:
            continue
        reached[name], uses = found
        waiting.extend(uses)
    return reached


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a definition takes from its module: not its own fields, parameters and variables of the same names."""
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and symbol.is_global())
    for inner in table.get_children():
        yield from _globals(inner)


def _names(code: CodeType) -> Iterator[str]:
    yield from (str(step.argval) for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _compiled(code: CodeType) -> Iterator[bytes | str]:
    """What byte code does, without where it stands in a file or in memory."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)  # pyright: ignore[reportUnknownArgumentType]


def _enclosed(function: Callable[..., Any]) -> Iterator[str]:
    """Defaults, and the variables of the functions around it; those that hold functions count by name alone."""
    for default in (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)):
        yield value_fingerprint(default)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        code = getattr(value, "__code__", None)  # not its own enclosed variables, which may lead back here
        yield digest(*_compiled(code)) if code is not None else value_fingerprint(value)


@lru_cache(maxsize=64)
def _definitions(module: ModuleType) -> Mapping[str, Definition]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return {}
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _leave_out_pace(node)
                found[node.name] = node
            case ast.ClassDef():
                found[node.name] = node
            case ast.Assign():
                found.update((target.id, node) for target in node.targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case _:
                pass
    return {name: (ast.dump(node), frozenset(_globals(_table(node)))) for name, node in found.items()}


def _leave_out_pace(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Remove `max_concurrency=` from a function's decorators: it changes neither what a call does nor who is called."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            decorator.keywords = [each for each in decorator.keywords if each.arg != "max_concurrency"]


def _table(node: ast.stmt) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(node), "definition", "exec")
