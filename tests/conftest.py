"""Fixtures for all tests: real servers, started when a test asks for them."""

import pytest

from rigs.fixtures import (
    control_plane,
    control_plane_binaries,
    control_plane_or_none,
    database_url,
    nats_server,
    postgres,
    postgres_url,
    prepare_binaries,
    private_control_plane,
    private_postgres,
)

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "control_plane_or_none",
    "database_url",
    "nats_server",
    "postgres",
    "postgres_url",
    "private_control_plane",
    "private_postgres",
]


def pytest_collection_finish(session: pytest.Session) -> None:
    prepare_binaries(session)
