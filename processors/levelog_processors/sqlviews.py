"""The SQL views of a program, with a typed column for each field in the annotations of its functions."""

from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from levelog_processors.program import Program
from levelog_store.look.sqlviews import EffectView, IndexView, JsonColumn, LevelView, SqlType, SqlView

_SCALARS: Final[dict[Any, SqlType]] = {str: "text", int: "integer", float: "float", bool: "boolean"}


def sql_views(program: Program) -> list[SqlView]:
    """The SQL views of all views and effects, and of all indices but those that levelog keeps by itself.

    One that shares its name with another is named after its operator too.
    """
    indices = {name: index for name, index in program.indices.items() if not index.handler.is_implicit}
    names = [name.partition("/")[2] for name in (*indices, *program.views)]

    def named(source: str) -> str:
        name = source.partition("/")[2]
        return name if names.count(name) == 1 else source.replace("/", "_")

    found: list[SqlView] = []
    for source, index in indices.items():
        if effect := program.effects.get(source):
            found.append(EffectView(named(source), source, _columns(effect.request), _columns(effect.returns)))
            continue
        key, value = index.handler.types
        found.append(IndexView(named(source), source, _columns(key), _columns(value)))
    for source, view in program.views.items():
        arguments = get_args(view.handler.returns)
        found.append(LevelView(named(source), source, _columns(arguments[0] if arguments else Any)))
    return found


def _columns(hint: Any) -> tuple[JsonColumn, ...]:
    """One column for a scalar, one for each field of a struct and each part of a tuple, else one of JSON."""
    hint = _without_none(hint)
    if hint in _SCALARS:
        return (JsonColumn("", _SCALARS[hint]),)
    struct = get_origin(hint) or hint
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        return tuple(
            JsonColumn(field.name, _SCALARS.get(_without_none(field.type), "json"), (field.encode_name,))
            for field in msgspec.structs.fields(hint)
        )
    parts = get_args(hint)
    if get_origin(hint) is tuple and parts and Ellipsis not in parts:
        return tuple(
            JsonColumn(str(number), _SCALARS.get(_without_none(part), "json"), (number - 1,))
            for number, part in enumerate(parts, start=1)
        )
    return (JsonColumn("", "json"),)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        rest = [part for part in get_args(hint) if part is not NoneType]
        return rest[0] if len(rest) == 1 else Any
    return hint
