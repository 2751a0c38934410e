"""Where Kopf fails its users, by stories: the same file of handlers, run by levelog and by Kopf itself.

Kopf is run where `make bench` has made its environment; there each story was seen to fail.
"""

from pathlib import Path

import pytest

from rigs.kopfrivals import CASES, KOPF, compare


@pytest.mark.parametrize("name", CASES)
async def test_a_story_that_fails_on_kopf_passes_here(name: str, tmp_path: Path) -> None:
    seen = await compare(name, "levelog", tmp_path)
    assert seen.is_right, seen.text


@pytest.mark.long
@pytest.mark.skipif(not KOPF.exists(), reason="Kopf has an environment of its own, which `make bench` makes")
@pytest.mark.parametrize("name", CASES)
async def test_the_story_fails_on_kopf_itself(name: str, tmp_path: Path) -> None:
    seen = await compare(name, "Kopf", tmp_path)
    assert not seen.is_right, seen.text
