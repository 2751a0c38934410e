"""A SQL view for each index and view of the operators, with typed columns, and one for their inputs.

In PostgreSQL they are in a schema named after the application, in SQLite beside the tables.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Dialect,
    Double,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema, CreateView, DropView

from levelog.handlers.indexers import MARK
from levelog_store.connect.database import Database
from levelog_store.fold.levelwrites import AS_LEFT, OF_BACKFILL
from levelog_store.look.contact import inputs_of_applications
from levelog_store.rows import ERRORS
from levelog_store.tables import INPUTS, backfills, index_entries, levels, objects, scopes

SqlType: TypeAlias = Literal["text", "integer", "float", "boolean", "json"]


class JsonColumn(Struct, frozen=True):
    """A column taken out of a JSON value: the way to it, names and positions, empty for the whole value."""

    name: str
    type: SqlType
    path: tuple[str | int, ...] = ()


class _View(Struct, frozen=True):
    name: str
    source: str
    """Operator and function, as in the tables."""


class LevelView(_View, frozen=True):
    """SQL view of a view's levels; the columns are taken out of desired and of actual alike."""

    columns: tuple[JsonColumn, ...]


class IndexView(_View, frozen=True):
    """SQL view of an index's entries; `error` says why an entry is stale, or why an object has none."""

    key: tuple[JsonColumn, ...]
    value: tuple[JsonColumn, ...]


class EffectView(_View, frozen=True):
    """SQL view of the calls of an effect that took place."""

    request: tuple[JsonColumn, ...]
    result: tuple[JsonColumn, ...]


SqlView: TypeAlias = LevelView | IndexView | EffectView
_NUL: Final = r"(?<!\\)((?:\\\\)*)\\u0000"
"""A NUL in JSON: its backslash is not itself escaped."""
_SHOWN_FOR_NUL: Final = "\N{REPLACEMENT CHARACTER}"
# What PostgreSQL's casts take without an error; its regular expressions count to 255.
_CASTS: Final[dict[SqlType, tuple[str, Any]]] = {
    "integer": ("^-?([0-9]{1,18}|[1-8][0-9]{18})$", BigInteger),
    "float": (r"^-?([0-9]{1,255}(\.[0-9]+)?|[0-9](\.[0-9]+)?[eE][-+]?([0-9]{1,2}|[12][0-9]{2}))$", Double),
    "boolean": ("^(true|false)$", Boolean),
}
_MARKED: Final = text("SELECT obj_description(to_regnamespace(quote_ident(:schema)), 'pg_namespace')")
_MAY_MAKE: Final = text(
    "SELECT coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = :schema), "
    "has_database_privilege(current_database(), 'CREATE'))"
)

_OURS: Final = text(
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(:schema)) AND oid IN "
    "(SELECT ev_class FROM pg_rewrite JOIN pg_depend ON objid = pg_rewrite.oid AND classid = 'pg_rewrite'::regclass "
    "WHERE refclassid = 'pg_class'::regclass AND refobjid = to_regclass(:table))"
)
"""Views that select from our table: neither the user's own, nor those of an application of the same name in another
schema of this database."""

_OURS_IN_SQLITE: Final = text("SELECT name FROM sqlite_master WHERE type = 'view' AND sql GLOB :text")
_TEXT_OF_OURS: Final = "*, scopes.cluster \nFROM * \nWHERE *scopes.application = '*"
"""How SQLAlchemy breaks the lines of what `_made` makes: if it changes them, both have to be found. Beside the tables
there may be views of the user's own."""


async def replace_views(database: Database, application: str, views: Sequence[SqlView]) -> bool:
    """Create the SQL views of an application if they differ from the wanted ones; drop those of removed functions.

    Returns whether they are as wanted now: in PostgreSQL, a user without the right leaves them unchanged.
    """
    async with database.transaction() as connection:
        made = _made(connection.dialect, application, views, schema=application if database.is_shared else None)
        if not database.is_shared:
            await _replace(connection, made, None)
            return True
        # Two processes that start together would meet in the catalogue.
        await connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"levelog views {application}"))))
        mark = _mark(connection.dialect, made)
        names = sorted(view.table.name for view in made)
        found = (await connection.execute(_MARKED, {"schema": application})).scalar_one()
        if found == mark and sorted(await _existing(connection, application)) == names:
            return True
        if not (await connection.execute(_MAY_MAKE, {"schema": application})).scalar_one():
            return False
        await connection.execute(CreateSchema(application, if_not_exists=True))
        await _replace(connection, made, application)
        schema = connection.dialect.identifier_preparer.quote_schema(application)
        names_and_mark = {"schema": schema, "mark": mark}
        comment = DDL("COMMENT ON SCHEMA %(schema)s IS '%(mark)s'", context=names_and_mark)  # type: ignore[no-untyped-call]
        await connection.execute(comment)
        return True


def _made(dialect: Dialect, application: str, views: Sequence[SqlView], *, schema: str | None) -> list[CreateView]:
    selects = [(view.name, _select(dialect, view)) for view in views]
    is_ours = scopes.c.application == literal(application)
    return [
        CreateView(selected.where(is_ours), name, schema=schema)
        for name, selected in (*selects, (INPUTS, inputs_of_applications()))
    ]


def _mark(dialect: Dialect, made: Sequence[CreateView]) -> str:
    """Comment of the schema, by which the views that it holds are known again."""
    statements = "\n".join(str(view.compile(dialect=dialect)) for view in made)
    return f"levelog {hashlib.sha256(statements.encode()).hexdigest()}"


async def _replace(connection: AsyncConnection, made: Sequence[CreateView], schema: str | None) -> None:
    for name in await _existing(connection, schema):
        await connection.execute(DropView(CreateView(select(literal(1).label("one")), name, schema=schema).table))
    for view in made:
        await connection.execute(view)


async def _existing(connection: AsyncConnection, schema: str | None) -> list[str]:
    if schema is None:
        rows = await connection.execute(_OURS_IN_SQLITE, {"text": _TEXT_OF_OURS})
    else:
        rows = await connection.execute(_OURS, {"schema": schema, "table": scopes.name})
    return [name for (name,) in rows]


def _select(dialect: Dialect, view: SqlView) -> Select[Any]:
    match view:
        case LevelView():
            return _levels(dialect, view)
        case IndexView():
            return _entries(dialect, view)
        case EffectView():
            return _calls(dialect, view)


def _levels(dialect: Dialect, view: LevelView) -> Select[Any]:
    compared = [
        _extracted(dialect, side, column, prefix)
        for column in view.columns
        for side, prefix in ((AS_LEFT["desired"], "desired"), (AS_LEFT["actual"], "actual"))
    ]
    return (
        select(
            objects.c.namespace,
            objects.c.name,
            AS_LEFT["status"],
            AS_LEFT["reason"],
            *compared,
            _without_nul(AS_LEFT["drift"]).label("drift") if dialect.name == "postgresql" else AS_LEFT["drift"],
            levels.c.round,
            AS_LEFT["evaluated_at"],
            levels.c.parent_uid.label("uid"),
            scopes.c.cluster,
        )
        .join(objects, and_(objects.c.scope == levels.c.scope, objects.c.object == levels.c.parent))
        .join(scopes, scopes.c.scope == levels.c.scope)
        .outerjoin(backfills, OF_BACKFILL)
        .where(levels.c.view == literal(view.source))
    )


def _entries(dialect: Dialect, view: IndexView) -> Select[Any]:
    entry = index_entries.c
    # An object that the index fails for has rows with the error alone, under its keys if they are known.
    is_error = func.substr(entry.key, 1, len(ERRORS)) == ERRORS
    key = case((entry.key == ERRORS, None), (is_error, func.substr(entry.key, len(ERRORS) + 1)), else_=entry.key)
    value = case((is_error, None), else_=entry.value)
    return (
        select(
            *(_extracted(dialect, key, column, "key") for column in view.key),
            *(_extracted(dialect, value, column, "value") for column in view.value),
            objects.c.namespace,
            objects.c.name,
            entry.error,
            scopes.c.cluster,
        )
        .join(objects, and_(objects.c.scope == entry.scope, objects.c.object == entry.object))
        .join(scopes, scopes.c.scope == entry.scope)
        .where(entry.index == literal(view.source))
    )


def _calls(dialect: Dialect, view: EffectView) -> Select[Any]:
    entry = index_entries.c

    def column(name: str, *path: str) -> ColumnElement[Any]:
        return _extracted(dialect, entry.value, JsonColumn("", "text", path), name)

    def columns(part: str, within: tuple[JsonColumn, ...]) -> list[ColumnElement[Any]]:
        return [_extracted(dialect, entry.value, replace(each, path=(part, *each.path)), part) for each in within]

    call = column("call", "name")
    # The entry stands under `@PARENT/CALL/`.
    parent = func.substr(entry.object, len(MARK) + 1, func.length(entry.object) - func.length(call) - len(MARK) - 2)
    return (
        select(
            objects.c.namespace,
            objects.c.name,
            call,
            *columns("request", view.request),
            *columns("result", view.result),
            column("idempotency_key", "idempotency_key"),
            column("called_at", "called_at"),
            scopes.c.cluster,
        )
        .join(objects, and_(objects.c.scope == entry.scope, objects.c.object == parent))
        .join(scopes, scopes.c.scope == entry.scope)
        .where(entry.index == literal(view.source))
    )


def _extracted(dialect: Dialect, source: ColumnElement[Any], column: JsonColumn, prefix: str) -> ColumnElement[Any]:
    label = f"{prefix}_{column.name}" if column.name else prefix
    if dialect.name == "postgresql":
        path = cast(literal("{" + ",".join(f'"{step}"' for step in column.path) + "}"), ARRAY(Text))
        document = _without_nul(source)
        if column.type == "json":
            return document.op("#>", return_type=JSON())(path).label(label)
        return _cast(document.op("#>>", return_type=Text())(path), column.type).label(label)
    steps = "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in column.path)
    return func.json_extract(source, literal(f"${steps}")).label(label)


def _without_nul(document: ColumnElement[Any]) -> ColumnElement[Any]:
    """A document that `#>>` takes: one that holds a NUL, anywhere, would end the statement for all rows."""
    written = cast(document, Text)
    shown = func.regexp_replace(written, _NUL, r"\1" + _SHOWN_FOR_NUL, "g")
    return cast(case((func.strpos(written, r"\u0000") > 0, shown), else_=written), JSON)


def _cast(value: ColumnElement[Any], kind: SqlType) -> ColumnElement[Any]:
    """The value as its annotation has it, else null: a handler may give what it does not name."""
    if kind not in _CASTS:
        return value
    pattern, sql_type = _CASTS[kind]
    return case((value.regexp_match(pattern), cast(value, sql_type)))
