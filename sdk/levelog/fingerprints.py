"""Identity of a function's code: its own definition and the module-level names that it reaches, without comments."""

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from levelog.canonical import digest


def fingerprint(function: Callable[..., Any]) -> str:
    """Digest of the function and of what it uses from its own module.

    Comments and layout do not count. Other modules count by name only: a change in a library that a handler imports
    has to be made known by a new version of the handler.
    """
    module = inspect.getmodule(function)
    definitions = _definitions(module) if module is not None else {}
    reached: dict[str, str] = {}
    waiting = [function.__name__]
    while waiting:
        name = waiting.pop()
        node = definitions.get(name)
        if node is None or name in reached:
            continue
        reached[name] = ast.dump(node)
        waiting.extend(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    if not reached:  # defined inside a function or typed at a prompt: its byte code has to do
        code = getattr(function, "__code__", None)
        if code is None:  # a class
            return digest(function.__qualname__)
        return digest(function.__name__, code.co_code, repr(code.co_consts), repr(code.co_names))
    return digest(*(part for name in sorted(reached) for part in (name, reached[name])))


@lru_cache(maxsize=64)
def _definitions(module: ModuleType) -> dict[str, ast.stmt]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return {}
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = node
            case ast.Assign():
                found.update((target.id, node) for target in node.targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case _:
                pass
    return found
