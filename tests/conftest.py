"""Fixtures for all tests: real servers, started when a test asks for them."""

import pytest

from rigs.fixtures import (
    control_plane,
    control_plane_binaries,
    control_plane_or_none,
    database_url,
    empty_postgres_url,
    nats_server,
    postgres,
    postgres_template,
    postgres_url,
    prepare_binaries,
    private_control_plane,
    private_postgres,
)
from rigs.run.spread import spread, workers

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "control_plane_or_none",
    "database_url",
    "empty_postgres_url",
    "nats_server",
    "postgres",
    "postgres_template",
    "postgres_url",
    "private_control_plane",
    "private_postgres",
]


def pytest_xdist_auto_num_workers() -> int:
    return workers()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    prepare_binaries(session)
