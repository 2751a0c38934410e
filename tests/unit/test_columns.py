"""Columns that are read into structs."""

from typing import ClassVar

import pytest
from msgspec import Struct

from levelog_store.dialects import fields
from levelog_store.tables import levels


def test_a_field_that_is_no_column_is_refused_with_the_column_that_is_nearest() -> None:
    class Row(Struct):
        view: str
        parnt: str = ""

    with pytest.raises(TypeError, match=r"^Row\.parnt is no column of levels; the nearest is parent$"):
        fields(Row, levels)


def test_a_field_that_is_found_elsewhere_is_no_column() -> None:
    class Row(Struct):
        found_elsewhere: ClassVar = {"shown"}
        view: str
        shown: str = ""

    assert fields(Row, levels) == [levels.c.view]
