"""Figures side by side."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table


def print_compared(console: Console, title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """Print figures by name of the column and of the figure, each with how many times the first column's it is."""
    table = Table(title=title, title_justify="left")
    for name in ("", *columns):
        table.add_column(name, justify="right" if name else "left")
    for what in dict.fromkeys(what for figures in columns.values() for what in figures):
        values = [figures.get(what) for figures in columns.values()]
        table.add_row(what, *("" if value is None else _shown(value, values[0]) for value in values))
    console.print(table)
    console.print(f"Behind each figure: how many times that of {next(iter(columns))}.")


def _shown(value: float, first: float | None) -> str:
    return f"{value:,.1f} ({value / first:.1f})" if first else f"{value:,.1f}"
