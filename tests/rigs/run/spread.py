"""Which tests share a worker: those that share something that is slow to start."""

import os
from typing import Any
from zlib import crc32

import pytest

from rigs.fixtures import KUBE_APISERVER
from rigs.run.examples import short_or_whole


def workers() -> int:
    """Four more than there are cores: half of its time, a test waits for a process, a server or a clock."""
    return (os.cpu_count() or 1) + 4


def spread(items: list[pytest.Item]) -> None:
    """Group the tests of the shared kube-apiserver, those of emptied ones, and those of one file's fixture.

    Ungrouped, each worker would start a control plane, and prepare each file's fixture again.
    """
    for item in items:
        if isinstance(item, pytest.Function) and (group := _group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def check_groups(session: pytest.Session) -> None:
    """Raises UsageError in a worker where the groups have no effect, as in pytest-xdist 3.8.0 under pytest 9.2."""
    is_grouping = getattr(session.config.option, "loadgroup", False)
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if is_grouping and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("pytest-xdist does not group tests under this version of pytest")


def _group_of(item: pytest.Function) -> str | None:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if _shares_with_its_file(item):
        return f"{item.path.stem} {KUBE_APISERVER if KUBE_APISERVER in params.values() else ''}".strip()
    if "private_control_plane" in item.fixturenames:  # of two groups where all run, since one would be the last to end
        return f"emptied {KUBE_APISERVER} {crc32(item.path.stem.encode()) % short_or_whole(1, 2)}"
    if "control_plane" in item.fixturenames or KUBE_APISERVER in params.values():
        return KUBE_APISERVER
    return None


def _shares_with_its_file(item: pytest.Function) -> bool:
    fixtures: Any = item._fixtureinfo  # pyright: ignore[reportPrivateUsage]  # nothing public tells the scopes
    return any(definitions[-1].scope == "module" for definitions in fixtures.name2fixturedefs.values())
