from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import SECRETS, GroupResource

KEY = b"0123456789abcdef"
PODS = GroupResource(group="", resource="pods")


def secret(data: dict[str, str], *, field: str = "data", name: str = "s", **more: Any) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default"}, field: data, **more}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@given(st.dictionaries(st.text(max_size=8), st.text("xyz", min_size=24, max_size=30), min_size=1))
def test_no_value_of_a_secret_is_left(values: dict[str, str]) -> None:
    body = msgspec.json.encode(secret({name: encoded(value) for name, value in values.items()}))
    redacted = Redactor(KEY).redact_body(SECRETS, body)
    for value in values.values():
        assert encoded(value).encode() not in redacted
        assert value.encode() not in redacted
    assert msgspec.json.decode(redacted)["data"].keys() == values.keys()


def test_a_changed_value_shows_and_an_equal_one_does_not() -> None:
    redactor = Redactor(KEY)
    first = redactor.redact_manifest(SECRETS, secret({"a": encoded("1"), "b": encoded("2")}))
    again = redactor.redact_manifest(SECRETS, secret({"a": encoded("1"), "b": encoded("3")}))
    assert first["data"]["a"] == again["data"]["a"]
    assert first["data"]["b"] != again["data"]["b"]


def test_equal_values_in_two_places_look_different() -> None:
    redactor = Redactor(KEY)
    here = redactor.redact_manifest(SECRETS, secret({"a": encoded("1"), "b": encoded("1")}))["data"]
    there = redactor.redact_manifest(SECRETS, secret({"a": encoded("1")}, name="t"))["data"]
    assert len({here["a"], here["b"], there["a"]}) == 3


def test_a_value_in_string_data_compares_with_the_same_one_in_data() -> None:
    redactor = Redactor(KEY)
    wanted = redactor.redact_manifest(SECRETS, secret({"a": "pass word"}, field="stringData"))
    actual = redactor.redact_manifest(SECRETS, secret({"a": encoded("pass word")}))
    assert wanted["stringData"]["a"] == actual["data"]["a"]


def test_chance_is_the_same_for_the_same_key_and_parts_alone() -> None:
    def drawn(key: bytes, *parts: str) -> int:
        return Redactor(key).chance(parts).getrandbits(128)

    first = drawn(KEY, "uid", "1")
    assert first == drawn(KEY, "uid", "1")
    assert len({first, drawn(KEY, "uid", "2"), drawn(KEY, "uid1", ""), drawn(bytes(16), "uid", "1")}) == 4


def test_redacting_twice_changes_nothing_more() -> None:
    redactor = Redactor(KEY)
    once = redactor.redact_manifest(SECRETS, secret({"a": encoded("1")}))
    assert redactor.redact_manifest(SECRETS, once) == once


def test_the_rest_of_a_secret_and_other_objects_stay() -> None:
    redacted = Redactor(KEY).redact_manifest(SECRETS, secret({"a": encoded("1")}, type="Opaque"))
    assert redacted["type"] == "Opaque"
    assert redacted["metadata"] == {"name": "s", "namespace": "default"}
    body = b'{"data":{"a":"1"}}'
    assert Redactor().redact_body(PODS, body) is body


def test_secrets_without_a_key_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="LEVELOG_REDACTION_KEY"):
        Redactor().require(SECRETS)
    with pytest.raises(ConfigurationError, match="LEVELOG_REDACTION_KEY"):
        Redactor().redact_body(SECRETS, b"{}")
    Redactor().require(PODS)
    Redactor(KEY).require(SECRETS)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 16"):
        Redactor(b"short")
