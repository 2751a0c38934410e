"""Set-valued parameters: one bound value however many keys are asked for, so that statements are prepared once.

Statements that run for each batch are also built once, since to build one takes longer than to run it: they stand in
functions that are `built_once`, and take their values by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Dialect,
    FromClause,
    Integer,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

from levelog.wire.canonical import canonical

T = TypeVar("T")

OF_SCOPE: Final = bindparam("of_scope", type_=Integer)
"""The scope, for statements that are built once."""


def built_once(build: Callable[[Dialect], T]) -> Callable[[Dialect], T]:
    """Have a function that builds a statement called once for each kind of database, however many engines there are."""
    built: dict[str, T] = {}

    @wraps(build)
    def find(dialect: Dialect) -> T:
        if dialect.name not in built:
            built[dialect.name] = build(dialect)
        return built[dialect.name]

    return find


def one_of(
    dialect: Dialect, column: ColumnElement[Any], values: Collection[str] | Collection[int]
) -> ColumnElement[bool]:
    """Condition that a column of texts or numbers holds one of the values."""
    return _is_among(dialect, column, literal(many(dialect, values), _many_of(dialect, column)))


def one_of_named(dialect: Dialect, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """The same, of the values of a parameter, which takes them as `many` gives them."""
    return _is_among(dialect, column, bindparam(name, type_=_many_of(dialect, column)))


def row_of(table: Table, *names: str) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` has in each column the value of the parameter `of_` and the column's name."""
    return and_(table.c.scope == OF_SCOPE, *(table.c[name] == bindparam(f"of_{name}") for name in names))


def many(dialect: Dialect, values: Collection[str] | Collection[int]) -> Any:
    """The value of a parameter that takes several."""
    return list(values) if dialect.name == "postgresql" else canonical(list(values)).decode()


def _many_of(dialect: Dialect, column: ColumnElement[Any]) -> TypeEngine[Any]:
    if dialect.name != "postgresql":
        return Text()
    return ARRAY(Text() if isinstance(column.type, Text) else column.type)


def _is_among(dialect: Dialect, column: ColumnElement[Any], values: BindParameter[Any]) -> ColumnElement[bool]:
    if dialect.name == "postgresql":
        return column == any_(cast(values, values.type))
    each = func.json_each(values).table_valued("value")
    return column.in_(select(each.c.value))


def pairs(dialect: Dialect) -> FromClause:
    """A table with text columns `first` and `second` to join with; its rows are given as `many_pairs` says."""
    if dialect.name == "postgresql":
        columns = [cast(bindparam(name, type_=ARRAY(Text)), ARRAY(Text)) for name in ("firsts", "seconds")]
        return func.unnest(*columns).table_valued("first", "second").render_derived(name="wanted")
    each = func.json_each(bindparam("pairs", type_=Text)).table_valued("value", name="each")
    return select(
        func.json_extract(each.c.value, "$[0]").label("first"), func.json_extract(each.c.value, "$[1]").label("second")
    ).subquery("wanted")


def many_pairs(dialect: Dialect, values: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """The parameters of a statement with `pairs`."""
    if dialect.name == "postgresql":
        return {"firsts": [first for first, _ in values], "seconds": [second for _, second in values]}
    return {"pairs": canonical(values).decode()}


def among(dialect: Dialect, columns: tuple[Column[Any], Column[Any]]) -> tuple[FromClause, ColumnElement[bool]]:
    """What to select from, and the condition, for the rows of `OF_SCOPE` whose two columns hold one of the `pairs`.

    SQLite would begin with all rows of the scope, as it has no statistics, and compare each with every pair. An outer
    join has to begin with the pairs; the condition leaves out those without a row, in a form that it does not see
    through.
    """
    wanted = pairs(dialect)
    table = columns[0].table
    matches = and_(table.c.scope == OF_SCOPE, columns[0] == wanted.c.first, columns[1] == wanted.c.second)
    if dialect.name == "postgresql":
        return wanted.join(table, matches), true()
    return wanted.outerjoin(table, matches), func.coalesce(table.c.scope, -1) == OF_SCOPE


def insert_for(dialect: Dialect, table: Table) -> postgresql.Insert | sqlite.Insert:
    """INSERT with the dialect's ON CONFLICT; both write it alike."""
    return postgresql.insert(table) if dialect.name == "postgresql" else sqlite.insert(table)
