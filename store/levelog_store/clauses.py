"""Set-valued parameters: one bound value however many keys are asked for, so that statements are prepared once."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Dialect,
    FromClause,
    Table,
    Text,
    and_,
    any_,
    cast,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY

from levelog.canonical import canonical


def one_of(dialect: Dialect, column: ColumnElement[Any], values: Collection[str]) -> ColumnElement[bool]:
    """Condition that a text column holds one of the values."""
    if dialect.name == "postgresql":
        return column == any_(cast(literal(list(values), ARRAY(Text)), ARRAY(Text)))
    each = func.json_each(canonical(list(values)).decode()).table_valued("value")
    return column.in_(select(each.c.value))


def one_of_numbers(dialect: Dialect, column: ColumnElement[Any], values: Collection[int]) -> ColumnElement[bool]:
    """Condition that a number column holds one of a few values, such as the partitions of a processor."""
    if dialect.name == "postgresql":
        return column == any_(cast(literal(list(values), ARRAY(column.type)), ARRAY(column.type)))
    each = func.json_each(canonical(list(values)).decode()).table_valued("value")
    return column.in_(select(each.c.value))


def pairs(dialect: Dialect, values: Sequence[tuple[str, str]]) -> FromClause:
    """A table with text columns `first` and `second` to join with."""
    if dialect.name == "postgresql":
        firsts = cast(literal([first for first, _ in values], ARRAY(Text)), ARRAY(Text))
        seconds = cast(literal([second for _, second in values], ARRAY(Text)), ARRAY(Text))
        return func.unnest(firsts, seconds).table_valued("first", "second").render_derived(name="wanted")
    each = func.json_each(canonical(values).decode()).table_valued("value", name="each")
    return select(
        func.json_extract(each.c.value, "$[0]").label("first"), func.json_extract(each.c.value, "$[1]").label("second")
    ).subquery("wanted")


def among(
    dialect: Dialect, scope: int, columns: tuple[Column[Any], Column[Any]], values: Sequence[tuple[str, str]]
) -> tuple[FromClause, ColumnElement[bool]]:
    """What to select from, and the condition, for the rows of a scope whose two columns hold one of the pairs.

    SQLite would begin with all rows of the scope, as it has no statistics, and compare each with every pair. An outer
    join has to begin with the pairs; the condition leaves out those without a row, in a form that it does not see
    through.
    """
    wanted = pairs(dialect, values)
    table = columns[0].table
    matches = and_(table.c.scope == scope, columns[0] == wanted.c.first, columns[1] == wanted.c.second)
    if dialect.name == "postgresql":
        return wanted.join(table, matches), true()
    return wanted.outerjoin(table, matches), func.coalesce(table.c.scope, -1) == scope


def insert_for(dialect: Dialect, table: Table) -> postgresql.Insert | sqlite.Insert:
    """INSERT with the dialect's ON CONFLICT; both write it alike."""
    return postgresql.insert(table) if dialect.name == "postgresql" else sqlite.insert(table)
