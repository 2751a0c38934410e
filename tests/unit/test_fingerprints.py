import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from levelog.fingerprints import fingerprint

Load = Callable[[str], ModuleType]

CODE = """
LIMIT = 3

def helper(value):
    return value + 1

def unrelated():
    return 0

def handler(value):
    return min(helper(value), LIMIT)
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    loaded: list[str] = []

    def load(code: str) -> ModuleType:
        name = f"fingerprinted_{len(loaded)}_{tmp_path.name}"
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("old", "new"), [("value + 1", "value + 2"), ("LIMIT = 3", "LIMIT = 4"), ("min(helper", "max(helper")]
)
def test_a_change_in_what_the_function_reaches_changes_the_fingerprint(load: Load, old: str, new: str) -> None:
    assert fingerprint(load(CODE).handler) != fingerprint(load(CODE.replace(old, new)).handler)


@pytest.mark.parametrize(("old", "new"), [("return 0", "return 1"), ("LIMIT = 3", "LIMIT = 3  # three")])
def test_a_comment_or_another_function_does_not(load: Load, old: str, new: str) -> None:
    assert fingerprint(load(CODE).handler) == fingerprint(load(CODE.replace(old, new)).handler)
