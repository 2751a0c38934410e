import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from levelog import ABSENT, PRESENT
from levelog.handlers.fingerprints import class_fingerprint, fingerprint, type_fingerprint, value_fingerprint

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


NAMESAKES = """
from levelog import Resource, Struct

class Ready(Struct):
    reason: str = ""

class Pod(Resource, version="v1", plural="pods"):
    status: Ready = Ready()

def status(pod):
    return 0

def shown(pod):
    status = pod.status
    return status.reason

def enclosing():
    def told(pod):
        return pod.status.reason
    return told
"""


DECORATED = """
def op(**options):
    return lambda function: function

SECONDS = 3
MOST = 4

@op(timeout=SECONDS, max_concurrency=MOST)
async def handler(pod):
    return pod
"""


def test_how_many_calls_run_at_a_time_does_not_and_other_options_do(load: Load) -> None:
    before = fingerprint(load(DECORATED).handler)
    for old, new in (
        ("MOST = 4", "MOST = 5"),
        ("max_concurrency=MOST", "max_concurrency=5"),
        (", max_concurrency=MOST", ""),
    ):
        assert fingerprint(load(DECORATED.replace(old, new)).handler) == before
    for old, new in (("SECONDS = 3", "SECONDS = 4"), ("timeout=SECONDS", "timeout=4"), ("timeout=SECONDS, ", "")):
        assert fingerprint(load(DECORATED.replace(old, new)).handler) != before


def test_a_function_named_as_a_field_or_a_variable_does_not(load: Load) -> None:
    old, new = load(NAMESAKES), load(NAMESAKES.replace("return 0", "return 1"))
    assert class_fingerprint(old.Pod) == class_fingerprint(new.Pod)
    assert fingerprint(old.shown) == fingerprint(new.shown)
    assert fingerprint(old.enclosing()) == fingerprint(new.enclosing())
    assert fingerprint(old.status) != fingerprint(new.status)


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("class", "    status: Ready = helper()"),
        ("class", "    def count(self): return helper()"),
        ("def", "    return [helper() for _ in pod]"),
        ("def", "    global helper; return helper()"),
        ("def", "    def inner(): return helper()\n    return inner()"),
    ],
)
def test_what_is_used_deep_inside_a_definition_does(load: Load, kind: str, use: str) -> None:
    head = "class handler:" if kind == "class" else "def handler(pod):"
    code = f"class Ready: pass\ndef helper():\n    return 0\n{head}\n{use}\n"
    assert fingerprint(load(code).handler) != fingerprint(load(code.replace("return 0", "return 1")).handler)


def test_enclosed_values_and_nested_code_count_and_places_in_memory_do_not() -> None:
    def handler_for(limit: int, *, is_other: bool = False) -> Callable[[list[int]], list[int]]:
        def nested(values: list[int]) -> list[int]:
            return [min(value, limit) for value in values]

        def other(values: list[int]) -> list[int]:
            return [max(value, limit) for value in values]

        other.__name__ = "nested"
        return other if is_other else nested

    assert fingerprint(handler_for(3)) == fingerprint(handler_for(3))
    assert fingerprint(handler_for(3)) != fingerprint(handler_for(4))
    assert fingerprint(handler_for(3)) != fingerprint(handler_for(3, is_other=True))


MODULE = """
from levelog import Resource, Struct

class Spec(Struct):
    image: str

class Pod(Resource, version="v1", plural="pods"):
    spec: Spec
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("image: str", "image: str | None"),
        ("image: str", "image: str\n    command: list[str] = []"),
        ('plural="pods"', 'plural="pods", group="other"'),
        ('version="v1"', 'version="v2"'),
    ],
)
def test_fields_of_nested_classes_count_wherever_a_handler_is(load: Load, old: str, new: str) -> None:
    assert class_fingerprint(load(MODULE).Pod) == class_fingerprint(load(MODULE).Pod)
    assert class_fingerprint(load(MODULE).Pod) != class_fingerprint(load(MODULE.replace(old, new)).Pod)


def test_types_count_by_how_they_are_decoded() -> None:
    assert type_fingerprint(tuple[str, int]) == type_fingerprint(tuple[str, int])
    assert type_fingerprint(tuple[str, int]) != type_fingerprint(tuple[str, str])


def test_options_count_by_content_and_functions_by_code() -> None:
    options = [
        {"app": "web"},
        {"app": "db"},
        {"app": PRESENT},
        {"app": ABSENT},
        {"app": lambda value: value == "web"},
        {"app": lambda value: value != "web"},
        {},
        None,
    ]
    assert len({value_fingerprint(option) for option in options}) == len(options)
    assert value_fingerprint({"a": 1, "b": 2}) == value_fingerprint({"b": 2, "a": 1})
