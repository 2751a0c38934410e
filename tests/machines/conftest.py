"""A laboratory on each database, and one on SQLite alone; the files are in memory where there is a place for them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigs.machine.world import Laboratory

MEMORY = Path("/dev/shm")  # what a machine does needs no disk, and waits for it at each commit


@pytest.fixture
def sqlite_laboratory() -> Iterator[Laboratory]:
    folder = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="levelog-machine-", dir=folder) as place,
        Laboratory(f"sqlite:///{place}/levelog.db") as opened,
    ):
        yield opened


@pytest.fixture
def postgresql_laboratory(postgres_url: str) -> Iterator[Laboratory]:
    with Laboratory(postgres_url) as opened:
        yield opened
