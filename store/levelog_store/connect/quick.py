"""A fast path for statements that are built once: skips what SQLAlchemy repeats at each execution.

SQLAlchemy looks up the compiled form of a statement, makes its parameters, a context, a cursor and a result, and
switches greenlets; this takes up to ten times as long as SQLite needs for the statement. Here everything except the
values is made once per statement. Transactions, errors and types stay SQLAlchemy's.

Only this file uses private members of SQLAlchemy; a test compares its results with those of SQLAlchemy.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import ClauseElement, Column, Dialect, Executable, SelectBase, Table, UpdateBase
from sqlalchemy.engine import Connection, IteratorResult, Transaction
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.util.concurrency import greenlet_spawn

from levelog_store.dialects import UNANSWERED, is_built_once
from levelog_store.tables import intents, key_versions, wakeups

Processor = Callable[[Any], Any]
T = TypeVar("T")

_SEVERAL: Final = (list, tuple)
"""What several rows are given in."""
_LOCKED_IN_ORDER: Final = {key_versions.name, intents.name, wakeups.name}
"""Tables whose rows several transactions lock: at most one in a statement, which says nothing of an order."""


class QuickResult(IteratorResult[Any]):
    """All rows of a statement."""

    rowcount = -1
    """Rows that matched, where a cursor tells."""


class Plan(NamedTuple):
    """A compiled statement with all that does not change from one execution to the next."""

    text: str
    writes: str
    """The table, of an INSERT, UPDATE or DELETE that reads no other one, and can be part of a statement; else empty."""
    given: tuple[tuple[str, Processor | None, Any], ...]
    """Each value in order: its parameter's name (empty for a constant), its converter, and the constant."""
    columns: SimpleResultMetaData | None
    converters: tuple[tuple[int, Processor], ...]
    """Positions of the columns whose values are converted, with what converts them."""

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
        _only_table(compiled.statement, expanded.statement),
        tuple(given),
        SimpleResultMetaData([column.keyname for column in columns]) if columns else None,
        tuple((place, convert) for place, convert in enumerate(found) if convert is not None),
    )


def _only_table(statement: ClauseElement | None, text: str) -> str:
    if not isinstance(statement, UpdateBase) or text.startswith("WITH"):
        return ""
    parts = list(iterate(statement))
    tables = {each.table if isinstance(each, Column) else each for each in parts}
    names = {each.name for each in tables if isinstance(each, Table)}
    return names.pop() if len(names) == 1 else ""


def _converted(convert: Any, value: Any) -> Any:
    return value if convert is None else convert(value)


class QuickConnection(AsyncConnection):
    """A connection that executes statements that are built once by their plan, and all others as SQLAlchemy does."""

    _driver: Any = None
    """The driver's connection, within a transaction of `begin_quick` whose statements nobody listens for."""
    _is_new = False
    """The transaction has had no statement."""
    _unsent: Sequence[tuple[Plan, tuple[Any, ...]]] = ()
    """What goes to PostgreSQL as part of the next statement, with its values."""
    _text = ""
    """Text of the statement that is being executed."""

    @property
    def driver(self) -> Any:
        """The connection of asyncpg or sqlite3."""
        return self._proxied.connection.driver_connection

    async def begin_quick(self) -> Transaction:
        """Begin a transaction, to be committed or rolled back within a greenlet."""
        self._is_new, self._unsent = True, ()
        return await greenlet_spawn(self._proxied.begin)

    async def execute(self, statement: Any, parameters: Any = None, *, execution_options: Any = None) -> Any:
        """As AsyncConnection.execute; with `UNANSWERED`, PostgreSQL gets it with the next statement or the commit."""
        if self._is_new:
            sync, self._is_new = self._proxied, False
            is_heard = bool(sync.dispatch.before_cursor_execute)  # by who counts or traces statements
            self._driver = None if is_heard else sync.connection.dbapi_connection
        is_late = execution_options is UNANSWERED
        options = None if is_late else execution_options
        driver, dialect = self._driver, self.sync_engine.dialect
        given: Sequence[Mapping[str, Any]] = parameters if type(parameters) in _SEVERAL else [parameters or {}]
        plan = plan_of(statement, dialect, tuple(given[0]), is_many=len(given) > 1)
        if plan is None or driver is None or options is not None:
            await self.send()
            return await super().execute(statement, parameters, execution_options=options)
        self._text = plan.text
        try:
            values = [plan.values(each) for each in given]
            if dialect.name == "postgresql":
                return await self._on_postgresql(driver, plan, values, is_late=is_late)
            cursor = driver.cursor()
            if len(values) == 1:
                cursor.execute(plan.text, values[0])
            else:
                cursor.executemany(plan.text, values)
            result = plan.result(cursor.fetchall())
            result.rowcount = cursor.rowcount
        except BaseException as error:
            await self._fail(error)
            raise
        return result

    async def send(self) -> None:
        """Send what was left for the next statement."""
        if self._unsent:
            try:
                await self._sent(self._driver)
            except BaseException as error:
                await self._fail(error)
                raise

    async def _on_postgresql(
        self, driver: Any, plan: Plan, values: Sequence[tuple[Any, ...]], *, is_late: bool
    ) -> QuickResult:
        is_single = len(values) == 1
        tables = [each.writes for each, _ in self._unsent]
        is_apart = plan.writes not in tables and len(_LOCKED_IN_ORDER.intersection([plan.writes, *tables])) < 2
        if tables and not (is_single and plan.writes and is_apart):
            await self._sent(driver)
        self._text = plan.text
        if not is_single:
            await _with_driver(driver, driver._connection.executemany, plan.text, values)  # noqa: SLF001
            return plan.result(())
        self._unsent = [*self._unsent, (plan, values[0])]
        return plan.result(()) if is_late and plan.writes else await self._sent(driver)

    async def _sent(self, driver: Any) -> QuickResult:
        """The result of the last of what is unsent."""
        unsent, self._unsent = self._unsent, ()
        self._text = _joined(*[plan.text for plan, _ in unsent])
        prepared, _ = await _with_driver(driver, driver._prepare, self._text, 0)  # noqa: SLF001
        rows = await _with_driver(driver, prepared.fetch, *[value for _, values in unsent for value in values])
        result = unsent[-1][0].result(rows)
        result.rowcount = int(prepared.get_statusmsg().rpartition(" ")[2])
        return result

    async def _fail(self, error: BaseException) -> None:
        """Close a connection that is broken, or in an unknown state as its task was cancelled."""
        await greenlet_spawn(_fail, self._proxied, error, self._text)


_PLACE: Final = re.compile(r"\$(\d+)")


@cache
def _joined(*texts: str) -> str:
    """One statement for PostgreSQL that does what all do, in no order, and gives the rows of the last."""
    if len(texts) == 1:
        return texts[0]
    parts: list[str] = []
    before = 0
    for text in texts:
        parts.append(_PLACE.sub(partial(_moved, by=before), text))
        before += max(map(int, _PLACE.findall(text)), default=0)
    *others, last = parts
    return f"WITH {', '.join(f'part{at} AS ({part})' for at, part in enumerate(others))} {last}"


def _moved(place: re.Match[str], by: int) -> str:
    return f"${int(place[1]) + by}"


async def _with_driver(driver: Any, do: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """As SQLAlchemy's cursor does, without what it makes anew each time, as the description of the columns."""
    try:
        if driver._transaction is None:  # noqa: SLF001
            await driver._start_transaction()  # noqa: SLF001
        return await do(*arguments)
    except Exception as error:
        driver._handle_exception(error)  # noqa: SLF001
        raise


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
