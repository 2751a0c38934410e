"""Several reads as one SQL statement, which is one round trip; each row says which read it belongs to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Dialect,
    Integer,
    Select,
    Text,
    cast,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from levelog_store.dialects import built_once, mappings, parameters
from levelog_store.rows import Scope

Rows: TypeAlias = list[dict[str, Any]]
Part: TypeAlias = tuple[Callable[[Dialect], Any], Mapping[str, Any]]
"""A read: what gives its statement, `built_once`, and its parameters but the scope."""


async def read_rows(connection: AsyncConnection, scope: Scope, *parts: Part | None) -> Iterator[Rows]:
    """The rows of each read, in no order; none for None. Parameters of the same name have the same value."""
    asked = [part for part in parts if part is not None]
    given = {name: value for _, values in asked for name, value in values.items()}
    dialect = connection.dialect
    values = parameters(dialect, scope, given)
    if len(asked) < 2:
        found = [mappings(await connection.execute(build(dialect), values)) for build, _ in asked]
    else:
        statement, places = _united(dialect, *(build for build, _ in asked))
        found = [[] for _ in asked]
        for number, *row in await connection.execute(statement, values):
            found[number].append({name: row[place] for name, place in places[number]})
    each = iter(found)
    return iter([[] if part is None else next(each) for part in parts])


class _United(NamedTuple):
    """The statement, and for each read the names of its columns with their places in a row."""

    statement: CompoundSelect[Any]
    places: Sequence[Sequence[tuple[str, int]]]


@built_once
def _united(dialect: Dialect, *builds: Callable[[Dialect], Any]) -> _United:
    """Columns of the same type share a place in the rows, whichever read they are of."""
    reads = [build(dialect).subquery(f"read{number}") for number, build in enumerate(builds)]
    types: list[TypeEngine[Any]] = []
    places: list[dict[int, ColumnElement[Any]]] = []
    for read in reads:
        places.append({})
        for column in read.c:
            wanted = Text() if isinstance(column.type, Text) else column.type  # a cast has no collation
            free = (at for at, kind in enumerate(types) if at not in places[-1] and repr(kind) == repr(wanted))
            place = next(free, len(types))
            types[place:] = types[place:] or [wanted]
            places[-1][place] = column
    nothing: list[ColumnElement[Any]] = [cast(null(), kind).label(f"value{at}") for at, kind in enumerate(types)]
    rows: list[Select[Any]] = []
    for number, taken in enumerate(places):
        values = (taken.get(at, none) for at, none in enumerate(nothing))
        rows.append(select(literal_column(str(number), Integer), *values))
        nothing = [null()] * len(types)  # the first tells the types
    named = [[*zip(read.c.keys(), taken, strict=True)] for read, taken in zip(reads, places, strict=True)]
    return _United(union_all(*rows), named)
