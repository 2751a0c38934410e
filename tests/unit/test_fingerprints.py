import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from levelog import ABSENT, PRESENT
from levelog.handlers import reached
from levelog.handlers.fingerprints import class_fingerprint, fingerprint, type_fingerprint, value_fingerprint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
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


@pytest.mark.parametrize(
    "given",
    [
        "FEW, MANY = 3, 9",
        "[FEW, *MANY] = (3, 9)",
        "class LIMITS: pass\nLIMITS.few = 3\nFEW = LIMITS.few",
        "LIMITS = {}\nLIMITS['few'] = 3\nFEW = LIMITS['few']",
        "FEW = 1\nFEW += 3",
        "for FEW in (1, 3): pass",
        "from contextlib import nullcontext\nwith nullcontext(3) as FEW: pass",
        "print(end='', *[FEW := 3][:0])",
        "match 3:\n    case FEW: pass",
        "from types import SimpleNamespace\nAT = SimpleNamespace(few=1)\nfor AT.few in (1, 3): pass\nFEW = AT.few",
    ],
)
def test_a_value_counts_however_a_name_gets_it(load: Load, given: str) -> None:
    code = f"{given}\ndef handler(value):\n    return value + FEW\ndef unrelated():\n    return 0"
    before = fingerprint(load(code).handler)
    assert fingerprint(load(code.replace("3", "4")).handler) != before
    assert fingerprint(load(code.replace("return 0", "return 1")).handler) == before


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


@pytest.mark.parametrize("values", [(timedelta(1), timedelta(2)), (NOON, NOON.date()), (Path("a"), Path("b"))])
def test_enclosed_times_and_what_else_has_a_text_count_by_content(values: tuple[object, object]) -> None:
    def handler_for(value: object) -> Callable[[], object]:
        return lambda: value

    one, other = map(handler_for, values)
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(handler_for(values[0]))


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


Made = Callable[[Mapping[str, str]], str]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Fingerprint of the `handler` of the first of some files, which a process that starts in their folder imports."""
    count = iter(range(1000))

    def made(files: Mapping[str, str]) -> str:
        folder = tmp_path / str(next(count))
        for name, code in files.items():
            path = folder / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(folder))
            before = set(sys.modules)
            try:
                return fingerprint(importlib.import_module(next(iter(files))).handler)
            finally:
                for name in set(sys.modules) - before:
                    del sys.modules[name]

    return made


HELPER = "SECONDS = 3\ndef seconds(value):\n    return value + SECONDS\ndef unrelated():\n    return 0\n"


@pytest.mark.parametrize(
    "handler",
    [
        "from ours.helper import seconds\ndef handler(value):\n    return seconds(value)",
        "from .helper import seconds as s\ndef handler(value):\n    return s(value)",
        "from . import helper\ndef handler(value):\n    return helper.seconds(value)",
        "import ours.helper\ndef handler(value):\n    return ours.helper.seconds(value)",
        "import ours.helper as h\ndef handler(value):\n    return [h.seconds(each) for each in value]",
        "from .helper import *\ndef handler(value):\n    return seconds(value)",
        "from .helper import *\nNONE = [seconds for seconds in ()]\ndef handler(value):\n    return seconds(value)",
        "from .given import seconds\ndef handler(value):\n    return seconds(value)",
        "def handler(value):\n    from .helper import seconds\n    return seconds(value)",
        "try:\n    from .helper import seconds\nexcept ImportError:\n    seconds = abs\n"
        "def handler(value):\n    return seconds(value)",
        "from .helper import seconds\nclass handler:\n    def call(self): return seconds(0)",
        "from . import helper\ndef enclosing():\n    return lambda value: helper.seconds(value)\nhandler = enclosing()",
    ],
)
def test_what_is_used_of_other_modules_that_are_yours_counts(made: Made, handler: str) -> None:
    def with_helper(helper: str) -> str:
        given = "from .helper import seconds"
        return made({"ours.handlers": handler, "ours.helper": helper, "ours.given": given, "ours.__init__": ""})

    before = with_helper(HELPER)
    assert with_helper(HELPER.replace("+ SECONDS", "- SECONDS")) != before
    assert with_helper(HELPER.replace("SECONDS = 3", "SECONDS = 4")) != before
    assert with_helper(HELPER.replace("return 0", "return 1")) == before
    assert with_helper(HELPER.replace("SECONDS = 3", "# how long\nSECONDS = 3")) == before


@pytest.mark.parametrize(
    "names",
    [("handlers", "helper"), ("handlers", "lib.helper"), ("ours.handlers", "lib.deep.helper")],
    ids=["beside", "in a folder without __init__.py", "of another package"],
)
def test_so_do_files_that_are_not_of_its_package(made: Made, names: tuple[str, str]) -> None:
    ours, other = names
    code = f"from {other} import seconds\ndef handler(value):\n    return seconds(value)"
    assert made({ours: code, other: HELPER}) != made({ours: code, other: HELPER.replace("+ SECONDS", "")})


def test_attributes_lead_through_folders_without_an_init_file(made: Made) -> None:
    code = "import lib.deep.helper\ndef handler(value):\n    return lib.deep.helper.seconds(value)"
    assert made({"handlers": code, "lib.deep.helper": HELPER}) != made(
        {"handlers": code, "lib.deep.helper": HELPER.replace("+ SECONDS", "")}
    )


def test_a_module_that_is_used_whole_counts_whole(made: Made) -> None:
    code = "import helper\ndef handler(value):\n    return vars(helper)[value]"
    assert made({"handlers": code, "helper": HELPER}) != made({"handlers": code, "helper": HELPER + "MORE = 1"})


def test_modules_that_use_each_other_are_followed_once(made: Made) -> None:
    code = "import helper\nSTEP = 1\ndef handler(value):\n    return helper.seconds(value)"
    helper = "import handlers\ndef seconds(value):\n    return handlers.handler(value - handlers.STEP)"
    files = {"handlers": code, "helper": helper}
    assert made(files) == made(files)
    assert made(files) != made(files | {"handlers": code.replace("STEP = 1", "STEP = 2")})
    again = {"handlers": "from helper import *\ndef handler(): return nothing", "helper": "from handlers import *"}
    assert made(again) == made(again)


def test_the_place_of_a_module_does_not_count(made: Made) -> None:
    one = {"handlers": "from helper import seconds\ndef handler(value):\n    return seconds(value)", "helper": HELPER}
    other = {"handlers": one["handlers"], "helper": "from deep.er import *", "deep.er": HELPER}
    assert made(one) == made(other)


def test_installed_modules_count_by_name(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "from helper import seconds\ndef handler(value):\n    return seconds(value)"
    monkeypatch.setattr(reached, "INSTALLED", [tmp_path.resolve()])
    assert made({"handlers": code, "helper": HELPER}) == made({"handlers": code, "helper": HELPER.replace("+", "-")})
    inside = {"ours.handlers": code.replace("helper", "ours.helper"), "ours.helper": HELPER}
    assert made(inside) != made(inside | {"ours.helper": HELPER.replace("+", "-")})


def test_a_definition_under_a_condition_counts(load: Load) -> None:
    code = (
        "import sys\nif sys.platform:\n    STEP = 1\nelse:\n    STEP = 2\ndef handler(value):\n    return value + STEP"
    )
    for other in (code.replace("STEP = 1", "STEP = 3"), code.replace("STEP = 2", "STEP = 3")):
        assert fingerprint(load(code).handler) != fingerprint(load(other).handler)
