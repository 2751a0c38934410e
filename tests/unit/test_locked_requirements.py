"""The locked requirements: what pip needs in them besides versions and hashes."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_FOLDER = Path(__file__).parents[2] / "requirements"


def _locked(name: str) -> list[Requirement]:
    lines = (_FOLDER / name).read_text().splitlines()
    return [Requirement(line.removesuffix("\\").strip()) for line in lines if line[:1].isalnum()]


@pytest.mark.parametrize("name", ["dev.txt", "runtime.txt"])
def test_whatever_is_asked_for_with_extras_is_locked_with_them(name: str) -> None:
    """Else pip takes `NAME[extra]` for a requirement without a version once a newer one is out, and refuses all."""
    here = [each for each in _locked(name) if each.marker is None or each.marker.evaluate()]
    locked = {canonicalize_name(each.name): each for each in here}
    missing = set[str]()
    for each in locked.values():
        for line in distribution(each.name).requires or []:
            asked = Requirement(line)
            extras: set[str] = each.extras or {""}
            if asked.marker is not None and not any(asked.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            if not asked.extras <= locked[canonicalize_name(asked.name)].extras:
                missing.add(f"{asked.name}[{','.join(sorted(asked.extras))}] of {each.name}")
    assert not missing
