import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.binaries import HOW_TO_GET_THEM, BinariesMissing, find_binaries

pytestmark = pytest.mark.long  # of a rig, which seldom changes

TESTS = Path(__file__).parent.parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH on which there is nothing but what the test puts there."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_without_go_the_reason_says_how_to_get_them(cache: Path) -> None:
    with pytest.raises(BinariesMissing) as missing:
        find_binaries()
    assert str(missing.value) == HOW_TO_GET_THEM


@pytest.mark.parametrize(("is_ci", "outcome"), [(False, "skipped"), (True, "error")])
def test_a_missing_control_plane_skips_its_tests_except_in_ci(cache: Path, is_ci: bool, outcome: str) -> None:
    environment = {**os.environ, "CI": "true" if is_ci else ""}
    file = TESTS / "integration/ingest/test_kube_apiserver.py"
    argv = [sys.executable, "-m", "pytest", "-rs", "-k", "an_etcd_that_was_restored", str(file)]
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=TESTS.parent)
    assert re.search(rf" 1 {outcome}\b", run.stdout)
    assert HOW_TO_GET_THEM in run.stdout
