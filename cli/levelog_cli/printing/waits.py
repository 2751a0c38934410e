"""What `levelog wakes` found: a table of wakes, then for each client what it waits for and what that would save."""

from pathlib import Path

from levelog.errors import ConfigurationError
from levelog_cli.printing.lines import print_line
from levelog_cli.printing.tables import print_table
from levelog_wakes.answer import WakesFound
from levelog_wakes.table import COLUMNS, cells, footer, rows


def print_answer(found: WakesFound) -> None:
    """Print all that was found."""
    if shown := rows(found):
        print_table([*COLUMNS], [cells(each) for each in shown])
    for each in shown:
        print_line("", f"{each.client}, {each.resource}", *(f"  {line}" for line in each.says))
    print_line("", footer(found))
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
