"""A laboratory on each database, and one on SQLite alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rigs.machine.daemons.daemonworld import DaemonLaboratory
from rigs.machine.edges.edgeworld import EdgeLaboratory
from rigs.machine.world import Laboratory


@pytest.fixture
def sqlite_laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    with Laboratory(f"sqlite:///{tmp_path}/levelog.db") as opened:
        yield opened


@pytest.fixture
def postgresql_laboratory(postgres_url: str) -> Iterator[Laboratory]:
    with Laboratory(postgres_url) as opened:
        yield opened


@pytest.fixture
def sqlite_edges(tmp_path: Path) -> Iterator[EdgeLaboratory]:
    with EdgeLaboratory(f"sqlite:///{tmp_path}/levelog.db") as opened:
        yield opened


@pytest.fixture
def postgresql_edges(postgres_url: str) -> Iterator[EdgeLaboratory]:
    with EdgeLaboratory(postgres_url) as opened:
        yield opened


@pytest.fixture
def sqlite_daemons(tmp_path: Path) -> Iterator[DaemonLaboratory]:
    with DaemonLaboratory(f"sqlite:///{tmp_path}/levelog.db") as opened:
        yield opened


@pytest.fixture
def postgresql_daemons(postgres_url: str) -> Iterator[DaemonLaboratory]:
    with DaemonLaboratory(postgres_url) as opened:
        yield opened
