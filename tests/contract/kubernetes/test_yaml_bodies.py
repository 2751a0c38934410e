"""YAML in the body of a request: what the server takes each value for. Files are read in the same way."""

from typing import Any

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

VALUES: dict[str, Any] = {
    "12:30:45": "12:30:45",
    "22:22": "22:22",
    "1e3": 1000,
    "1E+3": 1000,
    "6.02e+23": 6.02e23,
    "1e400": "1e400",
    "1.50": 1.5,
    "1.": 1,
    ".5": 0.5,
    "-.5e1": -5,
    ".": ".",
    "1.2.3": "1.2.3",
    "0.1": 0.1,
    "-0.0": 0,
    "0o644": 0o644,
    "0644": 0o644,
    "08": 8,
    "0x1F": 31,
    "-0x1f": -31,
    "0b101": 5,
    "0xZ": "0xZ",
    "+5": 5,
    "1_000": 1000,
    "1_0.5": 10.5,
    "_1": "_1",
    "9007199254740993": 9007199254740993,
    "123456789012345678901234567890": 123456789012345678901234567890.0,
    "0xFFFFFFFFFFFFFFFFFF": "0xFFFFFFFFFFFFFFFFFF",
    "yes": True,
    "On": True,
    "y": True,
    "off": False,
    "N": False,
    "TRUE": True,
    "tRUE": "tRUE",
    "~": None,
    "NULL": None,
    "nil": "nil",
    "2026-01-01": "2026-01-01",
    "2026-01-01T10:00:00Z": "2026-01-01T10:00:00Z",
    "=": "=",
    "<<": "<<",
    "'5'": "5",
    "!!str 5": "5",
    "!!float 5": 5,
    "!!int '5'": 5,
    "!!bool yes": True,
    "!!binary aGVsbG8=": "hello",
    "!other 5": "5",
    "!other [5]": [5],
    "{1: a, yes: b, 1.5: c}": {"1": "a", "true": "b", "1.5": "c"},
    "{2026-01-01: a}": {"2026-01-01": "a"},
    "&x {a: 1}": {"a": 1},
    '"\\u00e9\\U0001F600\\x41"': "é😀A",
    "|2-\n        indented\n      x": "  indented\nx",
    ">-\n      a\n      b": "a b",
    "1 \t# comment": 1,
}


def body(values: str) -> str:
    about = "metadata: {name: a}\nspec:\n  image: one\n  free:\n"
    return f"apiVersion: contract.example.com/v1\nkind: Web\n{about}{values}"


async def test_a_value_without_quotes_is_what_go_takes_it_for(webs: Webs) -> None:
    lines = "".join(f"    v{number:02}: {text}\n" for number, text in enumerate(VALUES))
    answer = await webs.api.apply(webs.at("a"), body(lines))
    assert answer.code == 201, answer.body
    found = dict(sorted(answer.body["spec"]["free"].items()))
    read = {text: (type(value), value) for text, value in zip(VALUES, found.values(), strict=True)}
    assert read == {text: (type(value), value) for text, value in VALUES.items()}


async def test_yaml_is_created_and_replaced_as_json_is(api: ClusterClient, config_maps: str) -> None:
    text = "metadata: {name: a}\ndata:\n  x: '1'\n"
    made = await api.ask("POST", config_maps, text, content_type="application/yaml")
    assert made.code == 201, made.body
    replaced = await api.ask("PUT", f"{config_maps}/a", text.replace("1", "2"), content_type="application/yaml")
    assert replaced.body["data"] == {"x": "2"}
    assert (await api.ask("POST", config_maps, text)).code == 400
    assert (await api.ask("POST", config_maps, text, content_type="*/*")).code == 415


@pytest.mark.parametrize("value", [".inf", "-.INF", ".nan", "{null: a}", "{[a]: b}", "!!int a", "!!binary ="])
async def test_what_is_not_in_json_is_refused(webs: Webs, value: str) -> None:
    answer = await webs.api.apply(webs.at("a"), body(f"    value: {value}\n"))
    assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body
    assert answer.body["message"].startswith("error decoding YAML: ")
