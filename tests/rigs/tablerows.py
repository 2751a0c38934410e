"""Rows of any table, for tests to which but a few of their columns matter."""

from typing import Any

from sqlalchemy import Boolean, Integer, Table
from sqlalchemy.types import TypeEngine

from levelog_store.dialects import Json, Timestamp
from levelog_store.rows import Scope
from rigs.leasing import LONG_AGO


def table_row(table: Table, scope: Scope, **values: Any) -> dict[str, Any]:
    """A row with something in every column that must have it."""
    filled = {column.name: _filler(column.type) for column in table.columns if not column.nullable}
    return {**filled, "scope": scope.number, **values}


def _filler(kind: TypeEngine[Any]) -> object:
    match kind:
        case Timestamp():
            return LONG_AGO
        case Json():
            return b"null"
        case Boolean():
            return False
        case Integer():
            return 0
        case _:
            return ""
