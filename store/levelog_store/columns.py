"""Types of columns, alike on both dialects."""

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import DateTime, Dialect, Text, TypeDecorator
from sqlalchemy.dialects import postgresql


class Json(TypeDecorator[bytes]):
    """JSON kept as the text that it was; `json` in PostgreSQL (checked, not re-encoded), TEXT in SQLite.

    Values are UTF-8 bytes on the Python side.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Choose the column type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(JsonText())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Give the driver text."""
        return None if value is None else value.decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """Take text from the driver."""
        return None if value is None else value.encode()


class JsonText(postgresql.JSON):
    """PostgreSQL's json type without SQLAlchemy's own encoding and decoding."""

    def bind_processor(self, dialect: Dialect) -> None:
        """Pass text as it is."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """Pass text as it is."""


class Timestamp(TypeDecorator[datetime]):
    """A moment: `timestamptz` in PostgreSQL, text in UTC in SQLite, which compares as times do.

    Values are aware datetimes, in UTC when they come back.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the driver a moment in UTC; SQLite's loses its zone there."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value}")
        value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Give the moment its zone again."""
        return None if value is None else value.replace(tzinfo=UTC)


BYTE_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by its bytes on both dialects, as in Python: rows are locked, and handed to views, in that order."""
