import importlib
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from levelog.calls.audithook import harmless
from levelog.calls.faults import HandlerFault
from levelog_replay.calling import ReplayCaller

NOBODY = ("127.0.0.1", 9)
LIMIT = timedelta(seconds=30)


def connects() -> None:
    with socket.socket() as made:
        made.connect_ex(NOBODY)


async def connects_in_the_loop() -> None:
    connects()


@pytest_asyncio.fixture
async def caller() -> AsyncIterator[ReplayCaller]:
    made = ReplayCaller(threads=1)
    yield made
    await made.close()


async def test_a_function_that_connects_is_refused_in_its_thread_and_in_the_loop(caller: ReplayCaller) -> None:
    with pytest.raises(HandlerFault, match="replay refuses the network"):
        await caller.run("one", connects, LIMIT, is_async=False)
    with pytest.raises(HandlerFault, match="replay refuses the network"):
        await caller.run("one", connects_in_the_loop, LIMIT, is_async=True)


@pytest.mark.parametrize(
    ("does", "what"),
    [
        (connects, r"socket.connect \('127.0.0.1', 9\)"),
        (lambda: socket.getaddrinfo("example.com", 443), "socket.getaddrinfo 'example.com'"),
        (lambda: urllib.request.urlopen("http://127.0.0.1:9/x", b"secret"), "urllib.Request 'http://127.0.0.1:9/x'"),
    ],
)
async def test_the_refusal_names_what_was_asked_for(caller: ReplayCaller, does: Callable[[], Any], what: str) -> None:
    with pytest.raises(HandlerFault, match=f"^{what}: replay refuses the network"):
        await caller.run("one", does, LIMIT, is_async=False)


async def test_levelog_itself_may_connect(caller: ReplayCaller) -> None:
    assert await caller.run("one", lambda: 1, LIMIT, is_async=False) == 1
    connects()


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (lambda folder: (folder / "new").mkdir(), "writing to files"),
        (lambda folder: (folder / "there").unlink(), "writing to files"),
        (lambda folder: (folder / "there").open("r+"), "writing to files"),
        (lambda folder: os.open(folder / "new", os.O_WRONLY | os.O_CREAT), "writing to files"),
        (lambda folder: sqlite3.connect(folder / "there"), "writing to files"),
        (lambda _: os.kill(os.getpid(), 0), "processes"),
        (lambda _: subprocess.run(["true"], check=True), "processes"),
        (lambda _: connects(), "the network"),
    ],
)
def test_what_is_to_be_harmless_changes_nothing_and_it_is_known_what_it_tried(
    does: Callable[[Path], object], kind: str, tmp_path: Path
) -> None:
    (tmp_path / "there").touch()
    with harmless() as refusals:
        with pytest.raises(HandlerFault, match=f"replay refuses {kind}"):
            does(tmp_path)
        assert (tmp_path / "there").read_text() == ""
    assert refusals.kind == kind
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


def test_a_module_that_is_imported_and_a_log_file_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_while_harmless.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    handler = logging.FileHandler(tmp_path / "log", delay=True)
    with harmless() as refusals:
        importlib.import_module("imported_while_harmless")
        handler.emit(logging.makeLogRecord({"msg": "hello"}))
    handler.close()
    assert refusals.kind == ""
    assert (tmp_path / "log").read_text() == "hello\n"
