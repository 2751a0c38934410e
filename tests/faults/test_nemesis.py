"""Faults against three nats-servers, a PostgreSQL pair and the processes, one after the other, while objects change.

The same for as long as you like: `PYTHONPATH=tests python -m rigs.nemesis --minutes 30 --seed 1`.
"""

import random
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from rigs.nemesis.faults import drawn
from rigs.nemesis.verdicts import judged

SEED: Final = 3
SHORT: Final = ["kill", "step-down", "spoiled-block", "promotion"]
"""Kinds that last for a few seconds each."""


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_nothing_is_wrong_after_any_fault(tmp_path: Path) -> None:
    faults = islice(drawn(random.Random(SEED), SHORT), len(SHORT))
    found = [each async for each in judged(tmp_path, SEED, faults)]
    assert len(found) == len(SHORT)
    wrong = [f"{each.fault}: {what}" for each in found for what in each.wrong]
    assert not wrong, "\n".join(wrong)
