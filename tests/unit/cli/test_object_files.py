"""What becomes of what a process found out about objects, while others are asked about."""

import os
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from levelog_cli.editing import objectfiles
from levelog_cli.editing.installing import Break
from levelog_cli.editing.notes import BoardNotes
from levelog_cli.editing.objectfiles import ObjectFiles
from levelog_cli.settings import Settings


class Noted(BoardNotes):
    """The lines of each subject."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}

    def put(self, subject: str, lines: Any) -> None:
        self.lines[subject] = list(lines)


def test_an_answer_about_former_definitions_says_nothing_of_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Connection] = []
    now = 0.0

    def pipe(*, duplex: bool) -> tuple[Connection, Connection]:
        told, telling = Pipe(duplex)
        answers.append(Connection(os.dup(telling.fileno()), readable=False))
        return told, telling

    def fork(_: str, __: Callable[[], None]) -> Any:
        return SimpleNamespace(join=lambda: None)

    monkeypatch.setattr(objectfiles, "Pipe", pipe)
    monkeypatch.setattr(objectfiles, "time", SimpleNamespace(monotonic=lambda: now))
    notes, family = Noted(), cast("Any", SimpleNamespace(fork=fork))
    files = ObjectFiles(Settings(), [], family, notes)
    first, second = Break("a", "/a", 1), Break("b", "/b", 2)
    files.renew([first])
    now += 10
    files.look()
    files.renew([second])
    answers[0].send(objectfiles.AppliedFiles(breaks=[]))
    now += 10
    files.look()  # takes the answer, and asks again
    assert notes.lines["definitions"] == ["objects from before may not fit: b"]
    answers[1].send(objectfiles.AppliedFiles(breaks=[]))
    files.look()
    assert notes.lines["definitions"] == []
    for answer in answers:
        answer.close()
