"""The test that the README shows is run."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_the_test_that_the_readme_shows_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.syspath_prepend(ROOT / "examples/webs")
    names: dict[str, Any] = {}
    try:
        exec(compile(shown, "README.md", "exec"), names)
    finally:
        sys.modules.pop("webs", None)
    [test] = [function for name, function in names.items() if name.startswith("test_")]
    test()
