"""A fast path for statements that are built once: skips what SQLAlchemy repeats at each execution.

SQLAlchemy looks up the compiled form of a statement, makes its parameters, a context, a cursor and a result, and
switches greenlets; this takes up to ten times as long as SQLite needs for the statement. Here everything except the
values is made once per statement. Transactions, errors and types stay SQLAlchemy's.

Only this file uses private members of SQLAlchemy; a test compares its results with those of SQLAlchemy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Dialect, Executable, SelectBase, UpdateBase
from sqlalchemy.engine import Connection, IteratorResult, Transaction
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.util.concurrency import greenlet_spawn

from levelog_store.dialects import is_built_once

Processor = Callable[[Any], Any]

_SEVERAL: Final = (list, tuple)
"""What several rows are given in."""


class QuickResult(IteratorResult[Any]):
    """All rows of a statement."""

    rowcount = -1
    """Rows that matched, where a cursor tells."""


class Plan(NamedTuple):
    """A compiled statement with all that does not change from one execution to the next."""

    text: str
    given: tuple[tuple[str, Processor | None, Any], ...]
    """Of each value in order: the name of the parameter, empty for a constant; what converts it; the constant."""
    columns: SimpleResultMetaData | None
    converters: tuple[tuple[int, Processor], ...]
    """Of the columns whose values are converted: position and what converts them."""

    def values(self, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """What the driver is given."""
        return tuple(
            [
                (convert(parameters[name]) if convert is not None else parameters[name]) if name else constant
                for name, convert, constant in self.given
            ]
        )

    def result(self, rows: Sequence[Sequence[Any]]) -> QuickResult:
        """What callers get for the driver's rows."""
        if self.columns is None:
            return QuickResult(_NO_COLUMNS, iter(()))
        if not self.converters:
            return QuickResult(self.columns, iter([tuple(row) for row in rows]))
        made: list[tuple[Any, ...]] = []
        for row in rows:
            values = list(row)
            for place, convert in self.converters:
                values[place] = convert(values[place])
            made.append(tuple(values))
        return QuickResult(self.columns, iter(made))


_NO_COLUMNS: Final = SimpleResultMetaData(())
_plans: Final[dict[tuple[int, str, tuple[str, ...], bool], Plan]] = {}


def plan_of(statement: Executable, dialect: Dialect, names: tuple[str, ...], *, is_many: bool) -> Plan | None:
    """How to execute a statement with parameters of these names; None: as SQLAlchemy does."""
    place = id(statement), dialect.name, names, is_many
    plan = _plans.get(place)
    if plan is None and is_built_once(statement) and isinstance(statement, SelectBase | UpdateBase):
        compiled = statement.compile(dialect=dialect, column_keys=list(names), for_executemany=is_many)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - for the type checkers
        plan = _plans[place] = _planned(compiled, dialect, names)
    return plan


def _planned(compiled: SQLCompiler, dialect: Dialect, names: tuple[str, ...]) -> Plan:
    expanded = compiled.construct_expanded_state(dict.fromkeys(names))
    processors: dict[str, Any] = {**compiled._bind_processors, **expanded.processors}  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    given = [
        (name, processors.get(name), None)
        if name in names
        else ("", None, _converted(processors.get(name), expanded.parameters[name]))
        for name in expanded.positiontup or ()
    ]
    columns = compiled._result_columns  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    types = [column.type for column in columns]
    found = [each._cached_result_processor(dialect, None) for each in types]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return Plan(
        expanded.statement,
        tuple(given),
        SimpleResultMetaData([column.keyname for column in columns]) if columns else None,
        tuple((place, convert) for place, convert in enumerate(found) if convert is not None),
    )


def _converted(convert: Any, value: Any) -> Any:
    return value if convert is None else convert(value)


class QuickConnection(AsyncConnection):
    """A connection that executes statements that are built once by their plan, and all others as SQLAlchemy does."""

    _driver: Any = None
    """The driver's connection, within a transaction of `begin_quick` whose statements nobody listens for."""
    _is_new = False
    """The transaction has had no statement."""

    async def begin_quick(self) -> Transaction:
        """Begin a transaction, to be committed or rolled back within a greenlet."""
        self._is_new = True
        return await greenlet_spawn(self._proxied.begin)

    async def execute(self, statement: Any, parameters: Any = None, *, execution_options: Any = None) -> Any:
        """As AsyncConnection.execute."""
        if self._is_new:
            sync, self._is_new = self._proxied, False
            is_heard = bool(sync.dispatch.before_cursor_execute)  # by who counts or traces statements
            self._driver = None if is_heard else sync.connection.dbapi_connection
        driver, dialect = self._driver, self.sync_engine.dialect
        given: Sequence[Mapping[str, Any]] = parameters if type(parameters) in _SEVERAL else [parameters or {}]
        plan = plan_of(statement, dialect, tuple(given[0]), is_many=len(given) > 1)
        if plan is None or driver is None or execution_options is not None:
            return await super().execute(statement, parameters, execution_options=execution_options)
        try:
            values = [plan.values(each) for each in given]
            if dialect.name == "postgresql":
                return await _on_postgresql(driver, plan, values)
            cursor = driver.cursor()
            if len(values) == 1:
                cursor.execute(plan.text, values[0])
            else:
                cursor.executemany(plan.text, values)
            result = plan.result(cursor.fetchall())
            result.rowcount = cursor.rowcount
        except BaseException as error:
            # which closes a connection that is broken, or in an unknown state as its task was cancelled
            await greenlet_spawn(_fail, self._proxied, error, plan.text)
            raise
        return result


async def _on_postgresql(driver: Any, plan: Plan, values: Sequence[tuple[Any, ...]]) -> QuickResult:
    """As SQLAlchemy's cursor does, without what it makes anew each time, as the description of the columns."""
    if driver._transaction is None:  # noqa: SLF001
        await driver._start_transaction()  # noqa: SLF001
    try:
        if len(values) > 1:
            await driver._connection.executemany(plan.text, values)  # noqa: SLF001
            return plan.result(())
        prepared, _ = await driver._prepare(plan.text, 0)  # noqa: SLF001
        result = plan.result(await prepared.fetch(*values[0]))
        result.rowcount = int(prepared.get_statusmsg().rpartition(" ")[2])
    except Exception as error:
        driver._handle_exception(error)  # noqa: SLF001
        raise
    return result


def _fail(connection: Connection, error: BaseException, text: str) -> None:
    try:
        raise error  # noqa: TRY301 - into the greenlet, in which SQLAlchemy looks for it
    except BaseException as raised:  # noqa: BLE001
        connection._handle_dbapi_exception(raised, text, None, None, None)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class QuickEngine(AsyncEngine):
    """An engine of such connections."""

    def connect(self) -> QuickConnection:
        """As AsyncEngine.connect."""
        return QuickConnection(self)
