"""Fingerprints: a digest of a function's code, of what it uses of yours, and of its types."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from types import CodeType
from typing import Any

import msgspec

from levelog.handlers.reached import reached_by, reached_from
from levelog_base.wire.canonical import canonical, digest


def fingerprint(function: Callable[..., Any]) -> str:
    """Digest of the function and of what it uses from its own module, and from others that are yours (see `reached`).

    Comments and layout do not count. Libraries count by name only: if one changes what a handler does, change the
    handler, too.
    """
    module = inspect.getmodule(function)
    name = getattr(function, "__name__", "")
    if name == getattr(function, "__qualname__", None) and (reached := reached_from(module, name)):
        return digest(*reached)
    # Defined inside a function or typed at a prompt: its byte code has to do, with what it encloses.
    code = getattr(function, "__code__", None)
    if code is None:
        return digest(_qualified(function if isinstance(function, type) else type(function)))
    return digest(function.__name__, *_compiled(code), *_enclosed(function), *reached_by(module, code))


def type_fingerprint(hint: Any) -> str:
    """Digest of how values of a type are decoded: fields with their types and defaults, nested ones too.

    What has no schema counts by its name.
    """
    try:  # other hints may be equal though their schemas are not, as int | str and str | int
        return _schema_of_class(hint) if isinstance(hint, type) else _schema_digest(hint)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return digest(_qualified(hint))


def _schema_digest(hint: Any) -> str:
    return digest(canonical(msgspec.json.schema(hint, schema_hook=lambda unknown: {"type": _qualified(unknown)})))


_schema_of_class = lru_cache(maxsize=256)(_schema_digest)


def class_fingerprint(cls: Any) -> str:
    """Digest of how a Resource class decodes objects, and of which: also one of another module."""
    return digest(type_fingerprint(cls), canonical(cls.resource_type), fingerprint(cls))


def value_fingerprint(value: object) -> str:
    """Digest of a handler's option: functions by their code, what has a JSON form by content, all else by its type."""
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
        case PurePath():
            return digest("path", str(value))
        case _:
            try:
                content = canonical(value)
            except (TypeError, ValueError, RecursionError):
                content = b""
            return digest(_qualified(type(value)), content)


def _qualified(cls: Any) -> str:
    """Name of a type without its module's, which for an operator file has to do with its path."""
    return str(getattr(cls, "__qualname__", type(cls).__qualname__))


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
