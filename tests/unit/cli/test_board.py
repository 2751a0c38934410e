"""The levels below the log of `levelog dev`, as they stand on a terminal."""

import os
import threading
from datetime import UTC, datetime
from multiprocessing import Pipe
from pathlib import Path

import pytest

from levelog_cli.editing.board import board_lines, show_board
from levelog_cli.settings import Settings
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope
from rigs.leasing import SCOPE

REASON = (
    'patch_status shops.example.com/default/first: 422 Invalid: Shop.example.com "first" is invalid: '
    "spec.colour: Required value; tried once since 2026-11-25 09:10:28 UTC, the next time at 2026-11-25 09:26:28 UTC"
)


def level(name: str, status: str = "in_sync", reason: str = "") -> tuple[Scope, LevelLine]:
    return SCOPE, LevelLine(
        view="shops/texts",
        parent=f"shops.example.com/default/{name}",
        status=status,
        reason=reason,
        drift=b'{"changed":["Ready","Reconciling","Stalled"]}' if reason else None,
        round=1,
        evaluated_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_all_of_a_reason_is_there_on_eighty_columns() -> None:
    lines = board_lines([level("second"), level("first", "failed", REASON)], "shop.py", [], 77, 24)
    assert max(map(len, lines)) <= 77
    assert REASON in " ".join(line.strip() for line in lines)
    assert lines[0] == "shop.py · 1 of 2 in sync"
    assert "second" in lines[-1]


def test_it_takes_a_third_of_the_terminal_and_half_where_something_is_wrong() -> None:
    many = [level(f"n{number:02}") for number in range(50)]
    lines = board_lines(many, "shop.py", [], 77, 30)
    assert len(lines) == 1 + 10
    assert lines[0] == "shop.py · 50 of 50 in sync, 41 more"
    lines = board_lines([*many, level("first", "failed", REASON)], "shop.py", [], 77, 30)
    assert len(lines) == 1 + 15
    assert "failed" in lines[2]


def test_what_is_noted_stands_whole_above_the_levels_and_before_there_are_any() -> None:
    note = f"Shop first: spec.colour: Required value; mend first.yaml: {'it is applied ' * 8}when you save it"
    for levels in ([], [level("first")]):
        heading, first, second, third, *rest = board_lines(levels, "shop.py", [note], 77, 24)
        assert heading == ("shop.py · 1 of 1 in sync" if levels else "shop.py")
        assert first.startswith("! Shop first: spec.colour: Required value; ")
        assert second.startswith("  ")
        assert f"{first} {second.strip()} {third.strip()}" == f"! {note}"
        assert len(rest) == 2 * len(levels)


def test_one_level_is_shown_however_long_its_reason_is() -> None:
    lines = board_lines([level("a", "failed", "word " * 500), level("b", "failed", "word")], "shop.py", [], 77, 24)
    assert lines[0] == "shop.py · 0 of 2 in sync, 1 more"
    assert len(lines) > 24


async def test_a_line_of_any_length_is_printed_and_the_next_one_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, writing = os.pipe()
    noted, noting = Pipe(duplex=False)

    def tell() -> None:
        with os.fdopen(writing, "w") as told:
            told.write(f"{'x' * 3_000_000}\nafter it\n")

    telling = threading.Thread(target=tell)
    telling.start()
    with noted, noting:
        await show_board(Settings(data_dir=tmp_path), lines, noted, "shop.py")
    telling.join()
    said = capsys.readouterr().out
    assert said.count("x") == 3_000_000
    assert "after it\n" in said
