"""The database's clock, the only one that leases and due times are compared with."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Dialect, func, literal

from levelog_store.columns import Timestamp


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
