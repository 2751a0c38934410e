"""A laboratory of each kind, on each database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigs.machine.daemons.daemonworld import DaemonWorld
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.laboratory import Laboratory, StepWorld
from rigs.machine.world import World


def _on_sqlite(kind: type[StepWorld]) -> Callable[..., Any]:
    @pytest.fixture
    def opened(tmp_path: Path) -> Iterator[Laboratory[Any]]:
        with Laboratory(f"sqlite:///{tmp_path}/levelog.db", kind) as laboratory:
            yield laboratory

    return opened


def _on_postgresql(kind: type[StepWorld]) -> Callable[..., Any]:
    @pytest.fixture
    def opened(postgres_url: str) -> Iterator[Laboratory[Any]]:
        with Laboratory(postgres_url, kind) as laboratory:
            yield laboratory

    return opened


sqlite_laboratory, postgresql_laboratory = _on_sqlite(World), _on_postgresql(World)
sqlite_edges, postgresql_edges = _on_sqlite(EdgeWorld), _on_postgresql(EdgeWorld)
sqlite_daemons, postgresql_daemons = _on_sqlite(DaemonWorld), _on_postgresql(DaemonWorld)
