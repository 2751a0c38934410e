"""pytest's fixture `simulate`, as users have it from the package and from its documentation."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from levelog.testing import Simulate
from levelog_cli.loading import load_operators
from rigs.levelog import WEBS_FILE, python

ROOT = Path(__file__).parents[2]
[op] = load_operators([WEBS_FILE])

ENDED = """
import pytest
from webs import op

seen = []


def test_a_simulation_is_open_during_a_test(simulate):
    seen.extend([simulate(op), simulate(op, echo=False)])
    for simulation in seen:
        simulation.run()


def test_and_closed_when_it_has_ended():
    for simulation in seen:
        with pytest.raises(RuntimeError, match="is closed"):
            simulation.run()
    assert len(seen) == 2
"""


def test_it_is_there_without_an_import(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.run()
    assert simulation.calls == {}


async def test_it_works_inside_a_running_event_loop(simulate: Simulate) -> None:
    simulation = simulate(op)
    simulation.run()
    assert simulation.calls == {}


async def test_the_tests_that_the_documentation_shows_pass(tmp_path: Path) -> None:
    [shown] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "testing/README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_webs.py").write_text(shown)
    (tmp_path / "test_ended.py").write_text(ENDED)
    settings = ("asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function", "filterwarnings = error")
    (tmp_path / "pytest.ini").write_text("\n".join(("[pytest]", *settings)))
    shutil.copy(WEBS_FILE, tmp_path)
    ran = await python("-m", "pytest", "-q", folder=tmp_path)
    assert ran.status == 0, ran
    assert "5 passed" in ran.stdout


def test_starting_pytest_loads_nothing_but_the_fixture() -> None:
    program = "import sys, levelog_testing.fixtures; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name for name in ran.stdout.split() if name.startswith("levelog")}
    assert loaded - {name for name in loaded if name.startswith("__editable__")} == {
        "levelog_testing",
        "levelog_testing.fixtures",
    }
