"""Tables of bars as pictures for the docs."""

import io
from collections.abc import Mapping
from pathlib import Path

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

WIDTH = 100
_COLOURS = ("bright_black", "yellow", "blue", "cyan", "magenta")
# As rich's own, without fonts that a reader's browser would fetch from elsewhere.
_SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: {char_height}px monospace }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="{width}" height="{height}" fill="white"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def save_bars(path: Path, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Write an SVG with a bar for each peer in each row, the longest of a row as wide as the picture allows."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    table = Table.grid(padding=(0, 1))
    for what, values in rows.items():
        table.add_row(Text(what, style="bold black"))
        for number, (peer, value) in enumerate(values.items()):
            bar = Bar(max(values.values()), 0, value, width=60, color=_COLOURS[number % len(_COLOURS)])
            table.add_row(
                Text(f"  {peer}", style="black"), bar, Text(f"{value:,.{0 if value >= 100 else 1}f}", style="black")
            )
    console.print(table)
    path.write_text(console.export_svg(title="", theme=DEFAULT_TERMINAL_THEME, code_format=_SVG, unique_id="bars"))
