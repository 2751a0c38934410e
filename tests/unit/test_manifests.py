"""Files of manifests: which objects they hold, where what cannot be read stands, and YAML that means what it said."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ConfigurationError
from levelog_base.wire.manifests import as_yaml, documents, each_manifest, manifests_of

A, B = {"kind": "A"}, {"kind": "B"}


def read(raw: str | bytes) -> list[Any]:
    """The value of each document, or why it has none."""
    found = documents(raw.encode() if isinstance(raw, str) else raw)
    return [f"{each.line}: {each.error}" if each.error else each.value for each in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind: A\n---\nkind: B\n", [A, B]),
        ("# first\n---\n---\n# nothing\n---\nkind: A\n", [None, None, A]),
        ("%YAML 1.1\n---\nkind: A\n...\n---\nkind: B\n", [A, B]),
        ("--- {kind: A}\n--- # B\r\nkind: B\r\n", [A, B]),
        ('{"kind":"A"}{"kind":"B"}', [A, B]),
        ('{\n\t"kind":"A"}\n---\n{kind: B}\n', [A, B]),
        ("\ufeffkind: A", [A]),
        ("kind: A".encode("utf-16"), [A]),
        ("text: |\n  ---\n  - =\n", [{"text": "---\n- =\n"}]),
        ("a: &x {b: 1, c: 1}\nd: {c: 2, <<: *x}\n", [{"a": {"b": 1, "c": 1}, "d": {"b": 1, "c": 2}}]),
        ("a: &x {b: 1}\nd:\n  <<: [*x, {b: 2, c: 2}]\n", [{"a": {"b": 1}, "d": {"b": 1, "c": 2}}]),
        ('{"a": 1.0, "b": 18446744073709551616, "c": NaN}', [{"a": 1, "b": 2.0**64, "c": "NaN"}]),
        pytest.param(f'{{"a": {"1" * 5000}}}', [{"a": "1" * 5000}], id="a number of 5,000 digits"),
    ],
)
def test_a_file_holds_the_documents_that_kubectl_finds_in_it(text: str | bytes, found: list[Any]) -> None:
    assert read(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: .inf", "2: .inf is not a number in JSON"),
        ("a: 1\nb: 1\na: 2", "3: a stands twice in an object"),
        ('{"a": 1,\n"b": {"c": 1, "c": 2}}', "1: c stands twice in an object"),
        ("a:\n  1: one\n  '1': two", "3: 1 stands twice in an object"),
        ("a:\n  null: one", "2: a key has to be text, and null is not"),
        ("? [a]\n: 1", "1: a key has to be text, and a list or an object is not"),
        ("a: !!int 1.5", "1: 1.5 is not what !!int stands for"),
        ("a: !!binary =", "1: !!binary is followed by no base64"),
        ("a: &b [*b]", "1: there is no anchor b before this alias"),
        ("a:\n  <<: 1", "2: << needs an object, or a list of them"),
        ("a:\n- b: c: d", "2: mapping values are not allowed in this context"),
        ("a:\n- \x00", "2: control characters are not allowed"),
        ('{"a": "\\ud800"}', "1: half of a surrogate pair stands in a text"),
        (b"a:\n- \xff", "2: this is not UTF-8"),
        ("".join(f"{n}: &x{n} [{f'*x{n - 1}, ' * 9 * (n > 0)}]\n" for n in range(9)), "7: too many values by aliases"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_read_is_named_with_its_line_and_holds_up_no_other(text: str | bytes, why: str) -> None:
    assert read(text) == [why]
    if isinstance(text, str):
        number, _, rest = why.partition(": ")
        assert read(f"kind: A\n---\n{text}\n---\nkind: B\n") == [A, f"{int(number) + 2}: {rest}", B]


def test_values_inside_each_other_without_end_are_refused() -> None:
    assert read("[" * 1_000_000) == read('{"a":' * 1_000_000) == ["1: too many values inside each other"]


def test_the_items_of_a_list_are_the_objects_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(
        "kind: List\nitems:\n- kind: A\n- kind: List\n  items: [{kind: B}]\n---\n"
        "apiVersion: v1\nkind: ConfigMapList\nitems: [{data: {}}]\n"
    )
    assert manifests_of(file) == [A, B, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}]


def test_what_is_no_object_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text("# nothing\n---\nwords\n---\nkind: A\n---\nkind: List\nitems: [1]\n")
    found = list(each_manifest(file))
    assert [str(each) for each in found if isinstance(each, ConfigurationError)] == [
        f"{file}, line 3: something that is not an object",
        f"{file}, line 7: something that is not an object",
    ]
    assert found[1] == A
    with pytest.raises(ConfigurationError, match="line 3: something that is not an object"):
        manifests_of(file)
    with pytest.raises(ConfigurationError, match=r"absent\.yaml cannot be read: No such file or directory"):
        manifests_of(tmp_path / "absent.yaml")


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text() | st.from_regex(r"[-+.]?[0-9_xobeE.:-]{0,6}", fullmatch=True) | st.sampled_from(["y", "n", "=", "~"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda below: st.lists(below) | st.dictionaries(TEXTS, below)
)


@given(VALUES)
def test_what_is_written_is_read_again_here_and_by_others(value: Any) -> None:
    text = as_yaml([{"value": value}])
    assert read(text) == [{"value": value}]
    assert yaml.safe_load(text) == {"value": value}
