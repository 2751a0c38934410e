"""What `levelog wakes` found: a table of wakes, then for each client what it waits for and what that would save."""

from pathlib import Path
from typing import Final

from levelog.errors import ConfigurationError
from levelog_cli.printing.lines import print_line
from levelog_cli.printing.tables import print_table
from levelog_wakes.answer import PeriodOf, WakesFound, Woken

_LEAST_WAKES: Final = 3
"""Rows with fewer are counted, not shown."""
_COLUMNS: Final = (
    *(
        "CLIENT",
        "RESOURCE",
        "OBJECTS",
        "WAKES",
        "PERIOD",
        "CALLS",
        "BYTES",
        "WROTE",
        "LISTS",
        "OWN",
        "UNDONE",
        "NO-OPS",
    ),
)


def print_answer(found: WakesFound) -> None:
    """Print all that was found."""
    shown = [each for each in found.woken if each.wakes >= _LEAST_WAKES]
    if shown:
        print_table(_COLUMNS, [_cells(each) for each in shown])
    for each in shown:
        print_line("", f"{each.client}, {each.resource}", *(f"  {line}" for line in each.says))
    seldom = len(found.woken) - len(shown)
    print_line(
        "", f"{found.events:,} events, {_seconds(found.seconds)}; {seldom} rows with fewer than 3 wakes left out"
    )
    for remark in found.remarks:
        print_line(f"note: {remark}")


def write_drafts(folder: Path, found: WakesFound) -> None:
    """Write a file for each condition. Raises ConfigurationError if the folder exists or cannot be made."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"--draft {folder}: {error.strerror}") from error
    for number, each in enumerate((each for each in found.woken if each.draft), 1):
        (folder / f"{each.resource.partition('.')[0]}_{number}.py").write_text(each.draft)


def _cells(each: Woken) -> list[str]:
    period = " and ".join(map(_period, each.periods[:2]))
    return [
        each.client,
        each.resource,
        f"{each.objects:,}",
        f"{each.wakes:,}",
        period or "irregular",
        f"{each.calls / each.wakes:.1f}",
        "" if each.size_bytes is None else f"{each.size_bytes / each.wakes:,.0f}",
        f"{each.wrote / each.wakes:.0%}",
        f"{sum(each.lists.values()):,}",
        f"{each.echoes:,}",
        f"{each.undone:,}",
        f"{each.unchanged_writes:,}",
    ]


def _period(period: PeriodOf) -> str:
    pollers = f", {period.pollers} pollers" if period.pollers > 1 else ""
    return f"{_seconds(period.seconds)} ± {_seconds(period.jitter_seconds)}{pollers}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
