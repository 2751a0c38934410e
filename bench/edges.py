"""Stories of handlers, told to Kopf and to levelog side by side: what each did, and whether it is right."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.programs import KOPF
from rigs.kopfalike import ALIKE
from rigs.kopfrivals import CASES, Case, Side, compare


async def run(console: Console) -> None:
    """Tell each story to both, and print what came of it."""
    await _tell(console, "The same file of handlers, run by each: where Kopf fails", CASES)
    await _tell(console, "The same file of handlers, run by each: what has to be as with Kopf", ALIKE)


async def _tell(console: Console, title: str, cases: Mapping[str, Case]) -> None:
    table = Table(title=title, show_lines=True)
    sides: list[Side] = ["Kopf", "levelog"] if KOPF.exists() else ["levelog"]
    for heading in ("story", *sides):
        table.add_column(heading)
    for case in cases.values():
        cells = [case.title]
        for side in sides:
            with tempfile.TemporaryDirectory(prefix="levelog-bench-") as folder:
                seen = await compare(case, side, Path(folder))
            cells.append(f"{'right' if seen.is_right else 'wrong'}: {seen.text}")
        table.add_row(*cells)
    console.print(table)
