"""Aligned columns on stdout: fitted to a terminal, and one row a line for whatever reads a pipe."""

import sys
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their headings; only a terminal's width folds a cell."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - loaded for terminals only
        from rich.table import Table  # noqa: PLC0415

        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        sys.stdout.write("  ".join(map(str.ljust, row, widths)).rstrip() + "\n")
