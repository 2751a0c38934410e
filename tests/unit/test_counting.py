"""Numbers in sentences."""

import re
from pathlib import Path

from levelog_base.counting import counted

_ROOT = Path(__file__).parents[2]
_ROOMS = ("actuator", "cli", "history", "ingest", "kube", "log", "migrations", "processors", "replay", "store")
_COUNTED = "objects|records|levels|claims|calls|receipts|rows|decisions|writes|results|times"


def test_one_of_a_thing_has_no_s() -> None:
    assert [counted(number, "more field") for number in (0, 1, 2)] == ["0 more fields", "1 more field", "2 more fields"]


def test_no_text_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    """Of lines of the log, whose numbers are not in the text of the code."""
    wrong = re.compile(rf'log\.\w+\([^)\n]*"[^"\n]*%d ({_COUNTED})\b')
    found = [
        f"{file.relative_to(_ROOT)}: {line.strip()}"
        for room in _ROOMS
        for file in (_ROOT / room).rglob("*.py")
        for line in file.read_text().splitlines()
        if wrong.search(line)
    ]
    assert [line for line in found if "%d levels: %s" not in line] == []  # which is for two and more
