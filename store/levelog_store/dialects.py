"""Differences between PostgreSQL and SQLite: types, the clock, sets of values, inserts of rows that may exist.

A set of values is one bound value, however many keys it has, so that statements are prepared once. Statements that run
for each batch are also built once, since building one takes longer than running it: they are in functions decorated
with `built_once`, and take their values by name, which `run` gives them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    CursorResult,
    DateTime,
    Delete,
    Dialect,
    Executable,
    FromClause,
    Integer,
    Result,
    Select,
    Table,
    Text,
    TypeDecorator,
    UpdateBase,
    and_,
    any_,
    bindparam,
    cast,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from levelog.selectors import alike
from levelog_base.wire.canonical import canonical
from levelog_store.rows import Scope


class Json(TypeDecorator[bytes]):
    """JSON kept as the text that it was; `json` in PostgreSQL (checked, not re-encoded), TEXT in SQLite.

    Values are UTF-8 bytes on the Python side.
    """

    impl = Text().with_variant(postgresql.JSON(), "postgresql")
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[..., str | None]:  # noqa: ARG002
        """Give the driver text."""
        return lambda value: None if value is None else value.decode()

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[..., bytes | None]:  # noqa: ARG002
        """Take text from the driver."""
        return lambda value: None if value is None else value.encode()


class _JsonList(TypeDecorator[Collection[Any]]):
    """Several values as one JSON text, which SQLite takes for an array."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[..., str]:  # noqa: ARG002
        """Give the driver text."""
        return lambda values: canonical(list(values)).decode()


class Timestamp(TypeDecorator[datetime]):
    """A moment: `timestamptz` in PostgreSQL, text in UTC in SQLite, which compares as times do.

    Values are aware datetimes, in UTC when they come back. SQLite's text is the one that SQLAlchemy would store.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[..., datetime | str | None]:
        """Give the driver a moment, or SQLite's its text."""
        return _zoned if dialect.name == "postgresql" else _moment_text

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[..., datetime | None] | None:  # noqa: ARG002
        """Read SQLite's text; PostgreSQL's driver gives moments in UTC."""
        return None if dialect.name == "postgresql" else _read_moment


def _zoned(value: datetime | None) -> datetime | None:
    if value is not None and value.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {value}")
    return value


def _moment_text(value: datetime | None) -> str | None:
    moment = _zoned(value)
    return None if moment is None else moment.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")


def _read_moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(f"{text}+00:00")


BYTE_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by its bytes on both dialects, as in Python: rows are locked, and handed to views, in that order."""


def now(dialect: Dialect, after: timedelta = timedelta(0)) -> ColumnElement[datetime]:
    """The time at which the statement began, plus `after`; in rows an aware datetime in UTC.

    Resolution: a microsecond in PostgreSQL, a millisecond in SQLite.
    """
    if dialect.name == "postgresql":
        # not now(): a transaction that waited for a lock would see the time before it waited
        moment = func.statement_timestamp(type_=Timestamp())
        return moment + literal(after) if after else moment
    modifiers = [f"{after.total_seconds():+.3f} seconds"] if after else []
    # the format that SQLAlchemy stores, with six digits, so that texts compare as times do
    return func.strftime("%Y-%m-%d %H:%M:%f000", "now", *modifiers, type_=Timestamp())


def is_due(dialect: Dialect, due_at: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Condition that the time of a row has come; null: it waits for none."""
    return or_(due_at.is_(None), due_at <= now(dialect))


def constant(text: str) -> ColumnElement[str]:
    """A text that stands in the statement, not among its values.

    A planner proves from nothing else that a partial index has all rows in question.
    """
    return literal_column(f"'{text}'", Text)


def is_of_resource(column: ColumnElement[str], resource: str) -> ColumnElement[bool]:
    """Condition that a column names an object of a resource.

    A range: no index is searched for a pattern that is not known when the statement is planned.
    """
    return and_(column > f"{resource}/", column < f"{resource}0")  # 0 is what follows /


def there_is(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition that there is a row; PostgreSQL looks it up for each, and does not read the other table whole.

    OFFSET keeps it from joining them. Nothing is selected: who asks may not read all columns.
    """
    return select(literal_column("1")).where(*conditions).offset(0).exists()


def has_match(one: Table, other: Any, names: Iterable[str], *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Condition that a row has one in another table with the same values in the columns, and of the same scope."""
    return there_is(*(other.c[name] == one.c[name] for name in ("scope", *names)), *conditions)


P = ParamSpec("P")
T = TypeVar("T")
StructT = TypeVar("StructT", bound=Struct)
PAGED: Final = {"yield_per": 500}
"""Execution options of a stream: so many rows are in memory at a time."""

OF_SCOPE: Final = bindparam("of_scope", type_=Integer)
"""The scope, for statements that are built once."""


def built_once(build: Callable[P, T]) -> Callable[P, T]:
    """Build a statement, or a tuple with one, once for each kind of database, and return the same one from then on.

    The statement for each combination of other arguments is cached for ever, so these should have few values.
    """
    built: dict[object, T] = {}

    @wraps(build)
    def find(*arguments: P.args, **named: P.kwargs) -> T:
        kinds = [each.name if isinstance(each, Dialect) else each for each in arguments]
        place = (*kinds, *named.items())
        if place not in built:
            made = built[place] = build(*arguments, **named)
            _built_once.update((id(each), each) for each in (made if isinstance(made, tuple) else (made,)))
        return built[place]

    return find


_built_once: Final[dict[int, object]] = {}


def is_built_once(statement: object) -> bool:
    """Tell whether a statement is the one that a function `built_once` gives out each time."""
    return _built_once.get(id(statement)) is statement


def one_of(
    dialect: Dialect, column: ColumnElement[Any], values: Collection[str] | Collection[int]
) -> ColumnElement[bool]:
    """Condition that a column of texts or numbers holds one of the values."""
    return _is_among(dialect, column, literal(list(values), _many_of(dialect, column)))


def one_of_named(dialect: Dialect, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """The same, of the values of a parameter."""
    return _is_among(dialect, column, bindparam(name, type_=_many_of(dialect, column)))


def named(dialect: Dialect, column: Column[Any], name: str) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` has in a column one of the values of a parameter."""
    return and_(column.table.c.scope == OF_SCOPE, one_of_named(dialect, column, name))


def row_of(table: Table, *names: str) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` has in each column the value of the parameter `of_` and the column's name."""
    return and_(table.c.scope == OF_SCOPE, *(table.c[name] == bindparam(f"of_{name}") for name in names))


def locked(
    dialect: Dialect, table: Table, *conditions: ColumnElement[bool], skip: bool = False, key_share: bool = False
) -> ColumnElement[bool]:
    """Condition of a statement that changes several rows of `OF_SCOPE`: those that meet other conditions.

    PostgreSQL locks them in the order of the primary key, as who changes them one by one does: without that, it goes as
    they happen to lie, and two transactions may wait for each other. Or it waits for nobody, and `skip` leaves out what
    others have locked. With `key_share` it does not wait for those that hold a row FOR KEY SHARE.
    """
    if dialect.name != "postgresql":
        return and_(table.c.scope == OF_SCOPE, *conditions)
    place = [column for column in table.primary_key.columns if column.name != "scope"]
    rows = select(*place).where(table.c.scope == OF_SCOPE, *conditions).order_by(*place)
    rows = rows.with_for_update(skip_locked=skip, key_share=key_share)
    is_locked = tuple_(*place).in_(rows.correlate(None)) if len(place) > 1 else place[0].in_(rows.correlate(None))
    return and_(table.c.scope == OF_SCOPE, is_locked)


def _many_of(dialect: Dialect, column: ColumnElement[Any]) -> TypeEngine[Any]:
    if dialect.name != "postgresql":
        return _JsonList()
    return ARRAY(Text() if isinstance(column.type, Text) else column.type)


def _is_among(dialect: Dialect, column: ColumnElement[Any], values: BindParameter[Any]) -> ColumnElement[bool]:
    if dialect.name == "postgresql":
        return column == any_(cast(values, values.type))
    each = func.json_each(values).table_valued("value")
    return column.in_(select(each.c.value))


def namespace_column(dialect: Dialect, name: ColumnElement[str]) -> ColumnElement[str]:
    """The namespace in an object's name, as `namespace_of` has it."""
    if dialect.name == "postgresql":
        return func.split_part(name, "/", 2, type_=Text)
    rest = func.substr(name, func.instr(name, "/") + 1)
    return func.substr(rest, 1, func.instr(rest, "/") - 1, type_=Text)


def each_of(dialect: Dialect, name: str) -> ColumnElement[str]:
    """The values of a parameter of several texts, one a row, to select and to compare with."""
    if dialect.name == "postgresql":
        wanted = func.unnest(cast(bindparam(name, type_=ARRAY(Text)), ARRAY(Text))).table_valued("value")
        return wanted.render_derived(name="wanted").c.value
    return func.json_each(bindparam(name, type_=_JsonList)).table_valued("value", name="wanted").c.value


def pairs(dialect: Dialect) -> FromClause:
    """A table with text columns `first` and `second` to join with; its rows are the parameter `pairs` of `run`."""
    if dialect.name == "postgresql":
        columns = [cast(bindparam(name, type_=ARRAY(Text)), ARRAY(Text)) for name in ("firsts", "seconds")]
        return func.unnest(*columns).table_valued("first", "second").render_derived(name="wanted")
    each = func.json_each(bindparam("pairs", type_=_JsonList)).table_valued("value", name="each")
    return select(
        func.json_extract(each.c.value, "$[0]").label("first"), func.json_extract(each.c.value, "$[1]").label("second")
    ).subquery("wanted")


@built_once
def of_pairs(dialect: Dialect, first: Column[Any], second: Column[Any], *others: ColumnElement[Any]) -> Select[Any]:
    """Columns of the rows of `OF_SCOPE` whose first two hold one of the `pairs`.

    SQLite would begin with all rows of the scope, as it has no statistics, and compare each with every pair. An outer
    join has to begin with the pairs; the condition leaves out those without a row, in a form that it does not see
    through.
    """
    wanted, table = pairs(dialect), first.table
    matches = and_(table.c.scope == OF_SCOPE, first == wanted.c.first, second == wanted.c.second)
    query = select(first, second, *others)
    if dialect.name == "postgresql":
        return query.select_from(wanted.join(table, matches))
    is_there = func.coalesce(table.c.scope, -1) == OF_SCOPE
    return query.select_from(wanted.outerjoin(table, matches)).where(is_there)


def parameters(dialect: Dialect, scope: Scope, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a statement takes that is built once: the scope and the given values, `pairs` as two arrays if need be."""
    values: dict[str, Any] = {"of_scope": scope.number, **given}
    if "pairs" in values and dialect.name == "postgresql":
        pairs = values.pop("pairs")
        values |= {"firsts": [first for first, _ in pairs], "seconds": [second for _, second in pairs]}
    return values


async def run(
    connection: AsyncConnection, scope: Scope, build: Callable[..., Executable], /, *fixed: Any, **values: Any
) -> CursorResult[*tuple[Any, ...]]:
    """Execute a statement of a scope that is `built_once`; `fixed` is what it is built with besides the dialect."""
    dialect = connection.dialect
    return await connection.execute(build(dialect, *fixed), parameters(dialect, scope, values))


UNANSWERED: Final[Mapping[str, Any]] = {"is_answered": False}
"""Execution options of a statement whose outcome nobody waits for."""


async def write(connection: AsyncConnection, statement: UpdateBase, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute a statement that is `built_once` for each of the rows; one for a single row may go with the next one."""
    if rows:
        await connection.execute(statement, rows, execution_options=UNANSWERED)


async def change(
    connection: AsyncConnection, scope: Scope, table: Table, /, *conditions: ColumnElement[bool], **values: Any
) -> int:
    """Give columns new values in the rows of a scope that meet the conditions; returns how many."""
    statement = update(table).where(table.c.scope == scope.number, *conditions).values(values)
    return (await connection.execute(statement)).rowcount


async def remove(connection: AsyncConnection, scope: Scope, table: Table, /, *conditions: ColumnElement[bool]) -> None:
    """Delete the rows of a scope that meet the conditions."""
    await connection.execute(delete(table).where(table.c.scope == scope.number, *conditions))


async def delete_each(
    connection: AsyncConnection, scope: Scope, table: Table, names: tuple[str, ...], places: Collection[Sequence[Any]]
) -> None:
    """Delete the rows of a scope that have these values in the columns of these names, in the given order."""
    if places:
        of = [f"of_{name}" for name in names]
        rows = [{"of_scope": scope.number, **dict(zip(of, place, strict=True))} for place in places]
        await write(connection, _delete_each(table, names), rows)


@built_once
def _delete_each(table: Table, names: tuple[str, ...]) -> Delete:
    return delete(table).where(row_of(table, *names))


def rows_of(scope: Scope, structs: Iterable[Struct]) -> list[dict[str, Any]]:
    """Rows whose columns are the fields of structs."""
    return [{"scope": scope.number, **asdict(each)} for each in structs]


def fields(kind: type[Struct], table: Table) -> list[Column[Any]]:
    """The columns that are fields of a struct, but for those that it says are `found_elsewhere`.

    Raises TypeError, naming the column that is most like it, for a field that is no column.
    """
    names = [name for name in kind.__struct_fields__ if name not in getattr(kind, "found_elsewhere", ())]
    for name in names:
        if name not in table.c:
            meant = alike(name, table.c.keys())
            raise TypeError(f"{kind.__name__}.{name} is no column of {table.name}; the nearest is {meant or 'none'}")
    return [table.c[name] for name in names]


async def read_as(
    kind: type[StructT],
    connection: AsyncConnection,
    scope: Scope,
    table: Table,
    /,
    *conditions: ColumnElement[bool],
    order: Sequence[Column[Any]] = (),
    limit: int | None = None,
) -> list[StructT]:
    """The rows of a scope that meet the conditions, as structs. Raises as `fields` does."""
    query = select(*fields(kind, table)).where(table.c.scope == scope.number, *conditions)
    return [kind(**row) for row in mappings(await connection.execute(query.order_by(*order).limit(limit)))]


def mappings(rows: Result[Any]) -> list[dict[str, Any]]:
    """The rows of a result as dicts: quicker than SQLAlchemy's own mappings."""
    names = tuple(rows.keys())
    return [dict(zip(names, row, strict=True)) for row in rows]


def insert_for(dialect: Dialect, table: Table) -> postgresql.Insert | sqlite.Insert:
    """INSERT with the dialect's ON CONFLICT; both write it alike."""
    return postgresql.insert(table) if dialect.name == "postgresql" else sqlite.insert(table)


async def upsert(
    connection: AsyncConnection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    update: Collection[str] | None = None,
) -> None:
    """Insert the rows; if the primary key exists, overwrite the columns of `update`.

    None means all columns outside the key that the rows give; an empty collection keeps the existing row. All rows give
    the same columns. They are written, and locked, in the given order: sort them if transactions may meet.

    The drivers send rows in a pipeline. Measured on PostgreSQL with rows of 3 KB, 1,000 at a time, that is as fast as
    one statement over an array for each column, which gains only with small rows.
    """
    if rows:
        changed = tuple(rows[0] if update is None else update)
        await write(connection, _upsert(connection.dialect, table, changed), rows)


@built_once
def _upsert(dialect: Dialect, table: Table, given: tuple[str, ...]) -> postgresql.Insert | sqlite.Insert:
    statement = insert_for(dialect, table)
    keys = list(table.primary_key)
    changed = [name for name in given if name not in table.primary_key.columns]
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=keys)
    fresh = statement.excluded
    return statement.on_conflict_do_update(index_elements=keys, set_={name: fresh[name] for name in changed})
