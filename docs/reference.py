"""Makes docs/reference.md out of the docstrings of the public names: `make reference`."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MODULE: Final = "levelog"
ALSO: Final = {
    "Metadata": "levelog.resources",
    "LabelledMetadata": "levelog.resources",
    "AnnotatedMetadata": "levelog.resources",
    "Hooks": "levelog.handlers.hooks",
    "On": "levelog.handlers.on",
    "CallKeywords": "levelog.calls.limits",
    "FilterKeywords": "levelog.selectors",
    "LimitKeywords": "levelog.calls.limits",
    "EdgeKeywords": "levelog.handlers.on",
}
"""Classes that are met through public ones and have no page, and where they are."""
LEFT_OUT: Final = {
    *("Operator.keep", "Operator.resources", "Operator.reads", "Retry.asked"),
    *("Hooks.__init__", "On.__init__", "Call.patched"),
}
"""Members that levelog alone uses."""
OPAQUE: Final = {"Intent"}
"""Classes that functions make, and whose members levelog alone reads."""
DECORATOR: Final = re.compile(r" -> Callable\[\[(\w+)\], \1\]$")
"""What a decorator with options returns: one without."""
SHOWN_MAGIC: Final = ("__getitem__", "__iter__", "__len__", "__contains__", "__call__")
HEAD: Final = """# Reference

Every name of `levelog`, with the beginning of its docstring: do not edit, run `make reference`.
`help(levelog.Operator)` prints all of it. [`levelog.testing`](testing.md), [`levelog.daemons`](daemons.md),
[`levelog.levels`](conditions.md#your-own), [`levelog.conditions`](conditions.md) and
[`levelog.embedding`](embedding.md) are described on these pages.
"""


def page() -> str:
    """The whole page."""
    where = dict.fromkeys(importlib.import_module(MODULE).__all__, MODULE) | ALSO
    entries = (_entry(name, *_definition(where[name], name)) for name in sorted(where, key=str.lower))
    return HEAD + "".join(line for entry in entries for line in entry)


def _definition(where: str, name: str) -> tuple[list[ast.stmt], str]:
    """Statements that define a name, looked for through imports, and the text that stands below an assignment."""
    tree = ast.parse(inspect.getsource(importlib.import_module(where)))
    found: list[ast.stmt] = []
    below = ""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if name in _defined(node):
            found.append(node)
            below = _string(following)
        elif isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _definition(str(node.module), name)
    if not found:
        raise LookupError(f"{where} does not define {name}")
    return found, below


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _entry(name: str, nodes: list[ast.stmt], below: str) -> Iterator[str]:
    yield f"\n## {name}\n"
    match nodes[-1]:
        case ast.ClassDef() as node:
            yield f"\n`class {name}({', '.join(ast.unparse(base) for base in node.bases)})`\n".replace("()`", "`")
            yield f"\n{_text(ast.get_docstring(node))}\n"
            if name not in OPAQUE:
                yield from _members(node)
        case ast.FunctionDef() as node:
            yield f"\n`{name}{_signature([node])}`\n\n{_text(ast.get_docstring(node))}\n"
        case _:
            yield f"\n{_text(below)}\n"


def _members(node: ast.ClassDef) -> Iterator[str]:
    functions: dict[str, list[Function]] = {}
    fields: list[str] = []
    for part, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(part.name, []).append(part)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and "ClassVar" not in _of(part):
            if f"{node.name}.{part.target.id}" in LEFT_OUT:
                continue
            default = f" = {ast.unparse(part.value)}" if part.value is not None else ""
            text = _string(following)
            fields.append(f"- `{part.target.id}: {_of(part)}{default}`" + (f": {_inline(text)}" if text else "") + "\n")
    if fields:
        yield "\n" + "".join(fields)
    if (init := functions.get("__init__")) and not fields and f"{node.name}.__init__" not in LEFT_OUT:
        yield f"\n`{node.name}{_signature(init, is_method=True)}`\n"
    listed: list[str] = []
    for name, nodes in functions.items():
        first, last = nodes[0], nodes[-1]
        described = ast.get_docstring(first) or ast.get_docstring(last)
        if not described or f"{node.name}.{name}" in LEFT_OUT or (name.startswith("_") and name not in SHOWN_MAGIC):
            continue
        is_property = "property" in map(ast.unparse, first.decorator_list)
        shown = f"{name}: {_returned(first)}" if is_property else name + _signature(nodes, is_method=True)
        listed.append(f"- `{shown}`: {_inline(_text(described))}\n")
    if listed:
        yield "\n" + "".join(listed)


def _signature(nodes: Sequence[Function], *, is_method: bool = False) -> str:
    """The longest overload, which is the one with options, else the only definition."""
    overloads = [node for node in nodes if "overload" in map(ast.unparse, node.decorator_list)]
    node = max(overloads or nodes, key=lambda each: len(ast.unparse(each.args)))
    given = ast.unparse(node.args)
    if is_method:
        given = given.removeprefix("self").removeprefix(", ")
    shown = f"({given})" + (f" -> {_returned(node)}" if node.returns and node.name != "__init__" else "")
    return DECORATOR.sub("", shown)


def _returned(node: Function) -> str:
    return ast.unparse(node.returns) if node.returns else "None"


def _of(part: ast.AnnAssign) -> str:
    return ast.unparse(part.annotation)


def _string(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
        case _:
            return ""


def _inline(text: str) -> str:
    return " ".join(text.split())


def _text(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return textwrap.dedent(text or "").strip().partition("\n\n")[0]


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
