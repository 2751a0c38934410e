"""Stories of handlers, told to levelog and to Kopf itself: where Kopf fails its users, and what has to be as there.

Many wait for seconds that nothing more comes, so `make test` has a few of each list.
Kopf is run where `make bench` has made its environment; there each story of `CASES` was seen to fail.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rigs.kopfalike import ALIKE
from rigs.kopfrivals import CASES, KOPF, Case, compare


def some_of(cases: Mapping[str, Case], *quick: str) -> list[Any]:
    """All names; those that are not quick are for long tests."""
    assert cases.keys() >= {*quick}
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in cases]


@pytest.mark.parametrize("name", some_of(CASES, "expired", "uninstalled"))
async def test_a_story_that_fails_on_kopf_passes_here(name: str, tmp_path: Path) -> None:
    seen = await compare(CASES[name], "levelog", tmp_path)
    assert seen.is_right, seen.text


@pytest.mark.long
@pytest.mark.skipif(not KOPF.exists(), reason="Kopf has an environment of its own, which `make bench` makes")
@pytest.mark.parametrize("name", CASES)
async def test_the_story_fails_on_kopf_itself(name: str, tmp_path: Path) -> None:
    seen = await compare(CASES[name], "Kopf", tmp_path)
    assert not seen.is_right, seen.text


@pytest.mark.parametrize("name", some_of(ALIKE, "created", "beginning"))
async def test_a_story_that_users_rely_on_is_as_with_kopf(name: str, tmp_path: Path) -> None:
    seen = await compare(ALIKE[name], "levelog", tmp_path)
    assert seen.is_right, seen.text


@pytest.mark.long
@pytest.mark.skipif(not KOPF.exists(), reason="Kopf has an environment of its own, which `make bench` makes")
@pytest.mark.parametrize("name", ALIKE)
async def test_the_story_is_so_with_kopf_itself(name: str, tmp_path: Path) -> None:
    seen = await compare(ALIKE[name], "Kopf", tmp_path)
    assert seen.is_right, seen.text
