"""Stories of handlers, told to Kopf and to levelog side by side: what each did, and whether it is right."""

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.kopfprocess import is_installed
from rigs.kopfrivals import CASES, Side, compare


async def run(console: Console) -> None:
    """Tell each story to both, and print what came of it."""
    table = Table(title="The same file of handlers, run by each", show_lines=True)
    sides: list[Side] = ["Kopf", "levelog"] if is_installed() else ["levelog"]
    for heading in ("story", *sides):
        table.add_column(heading)
    for name, case in CASES.items():
        cells = [case.title]
        for side in sides:
            with tempfile.TemporaryDirectory(prefix="levelog-bench-") as folder:
                seen = await compare(name, side, Path(folder))
            cells.append(f"{'right' if seen.is_right else 'wrong'}: {seen.text}")
        table.add_row(*cells)
    console.print(table)
