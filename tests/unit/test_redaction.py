"""What redaction hides: Secrets, variables and what rules name, in manifests, patches and any text."""

import json
import random
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import MOST_CHARACTERS, Redactor
from levelog_base.secrets.scrubbing import scrub
from levelog_base.secrets.secretrules import Rules
from levelog_base.wire.objects import SECRETS, GroupResource, ObjectKey

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


WEBS = GroupResource(group="example.com", resource="webs")
WEB = ObjectKey(group="example.com", resource="webs", namespace="default", name="shop")


def redactor(*rules: str) -> Redactor:
    return Redactor(KEY, Rules.parse(rules))


def pod(value: str, name: str = "PASSWORD", **metadata: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "web:1", "env": [{"name": name, "value": value}, {"name": "EMPTY"}]}
    return {"metadata": {"name": "shop-0", "namespace": "default", **metadata}, "spec": {"containers": [container]}}


def variable(manifest: Any) -> Any:
    return manifest["spec"]["containers"][0]["env"][0]["value"]


def test_literal_values_of_variables_are_hashed_wherever_a_pod_template_is() -> None:
    deep = {"metadata": {"name": "s"}, "spec": {"jobs": [{"template": pod("hunter2")}]}}
    body = redactor().redact_body(WEBS, msgspec.json.encode(deep))
    assert b"hunter2" not in body
    found = msgspec.json.decode(body)["spec"]["jobs"][0]["template"]
    assert variable(found).startswith("hmac-sha256:")
    assert found["spec"]["containers"][0]["image"] == "web:1"
    assert found["spec"]["containers"][0]["env"][1] == {"name": "EMPTY"}


def test_a_variable_of_a_pod_has_the_hash_of_its_template_and_not_that_of_another_namespace() -> None:
    def hashed(namespace: str, value: str) -> Any:
        template = {"metadata": {"name": "shop", "namespace": namespace}, "spec": {"template": pod(value)}}
        return variable(redactor().redact_manifest(WEBS, template)["spec"]["template"])

    there = hashed("default", "one")
    assert variable(redactor().redact_manifest(PODS, pod("one"))) == there
    assert variable(redactor().redact_manifest(PODS, pod("two"))) != there
    assert hashed("other", "one") != there, "a guess in one namespace tells nothing of another"


@pytest.mark.parametrize(
    "spec",
    [
        {"env": {"PASSWORD": "hunter2"}},
        {"extraEnv": [{"name": "PASSWORD", "value": "hunter2"}]},
        {"jobs": [{"env": {"PASSWORD": "hunter2", "nested": {"env": [{"name": "A", "value": "b"}]}}}]},
        {"template": {"kind": "Secret", "metadata": {"name": "a"}, "stringData": {"password": "hunter2"}}},
        {"objects": [{"kind": "Secret", "data": {"password": "aHVudGVyMg=="}}]},
    ],
    ids=str,
)
def test_variables_and_secrets_are_hashed_in_whatever_form_they_come(spec: dict[str, Any]) -> None:
    web = {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec}
    body = redactor().redact_body(WEBS, msgspec.json.encode(web))
    assert b"hunter2" not in body
    assert b"aHVudGVyMg" not in body
    assert b"hmac-sha256:" in body


def test_a_number_of_a_variable_is_hashed_and_a_reference_to_a_secret_is_not() -> None:
    pins = {"metadata": {"name": "a"}, "spec": {"env": [{"name": "PIN", "value": 1234}]}}
    assert b"1234" not in redactor().redact_body(WEBS, msgspec.json.encode(pins))
    refers = {"metadata": {"name": "a"}, "spec": {"source": {"kind": "Secret", "name": "db", "key": "data"}}}
    assert msgspec.json.decode(redactor().redact_body(WEBS, msgspec.json.encode(refers))) == refers


def test_variables_that_are_excepted_stay_as_they_are() -> None:
    some = redactor("!env:LOG_*")
    body = msgspec.json.encode(pod("info", "LOG_LEVEL"))
    assert some.redact_body(PODS, body) is body
    assert b"hunter2" not in some.redact_body(PODS, msgspec.json.encode(pod("hunter2")))
    assert variable(redactor("!env:*").redact_manifest(PODS, pod("hunter2"))) == "hunter2"


def test_annotations_that_hold_manifests_are_hashed_and_so_are_named_ones() -> None:
    annotations = {"kopf.zalando.org/last-handled-configuration": "a", "vault.example.com/token": "b", "team": "web"}
    inner = {"x": {"metadata": {"annotations": annotations}}}
    template = {"metadata": {"name": "shop", "annotations": annotations}, "spec": inner}
    found = redactor("annotation:vault.example.com/*").redact_manifest(WEBS, template)
    for seen in (found["metadata"]["annotations"], found["spec"]["x"]["metadata"]["annotations"]):
        assert {name for name, value in seen.items() if value.startswith("hmac-sha256:")} == annotations.keys() - {
            "team"
        }
        assert seen["team"] == "web"


def test_a_path_covers_all_below_it_in_lists_and_mappings() -> None:
    web = {
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "users": [{"name": "a", "password": "p1"}, {"name": "b", "password": "p2"}],
            "auth": {"pin": 1234, "on": True, "hint": None, "keys": ["k1"]},
            "by.name": {"x": {"token": "t1"}},
        },
    }
    rules = (
        "webs.example.com:spec.users[].password",
        "webs.example.com:spec.auth",
        'webs.example.com:spec["by.name"].*.token',
    )
    body = redactor(*rules).redact_body(WEBS, msgspec.json.encode(web))
    for value in (b"p1", b"p2", b"1234", b"k1", b"t1"):
        assert value not in body
    spec = msgspec.json.decode(body)["spec"]
    assert spec["users"][1]["name"] == "b"
    assert (spec["auth"]["on"], spec["auth"]["hint"]) == (True, None)
    other = GroupResource(group="example.org", resource="webs")
    assert redactor(*rules).redact_manifest(other, web) == web


def test_patches_are_redacted_as_if_their_values_stood_in_the_object() -> None:
    some = redactor("webs.example.com:spec.users[].password", "webs.example.com:spec.tokens.*", "annotation:a/b")
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/spec/users/-", "value": {"name": "c", "password": "p3"}},
        {"op": "replace", "path": "/spec/users/0/password", "value": "p4"},
        {"op": "test", "path": "/spec/tokens/0", "value": "t4"},
        {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "a4"},
        {"op": "add", "path": "/spec/template/spec/containers/0/env/0/value", "value": "e4"},
        {"op": "replace", "path": "", "value": {"spec": {"users": [{"password": "p5"}]}}},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "remove", "path": "/spec/users/1"},
    ]
    found = some.redact_content(WEB, operations)
    text = msgspec.json.encode(found.content).decode()
    assert not [value for value in ("p3", "p4", "t4", "a4", "e4", "p5") if f'"{value}"' in text]
    assert found.secrets == {"p3", "p4", "t4", "a4", "e4", "p5"}
    assert found.content[-2:] == operations[-2:]
    assert operations[1]["value"] == "p4"
    merged = some.redact_content(WEB, {"spec": {"tokens": {"x": "t6"}}})
    assert merged.secrets == {"t6"}


def test_content_without_anything_to_hide_is_passed_as_it_is() -> None:
    web = {"metadata": {"name": "shop"}, "spec": {"replicas": 3}}
    assert redactor().redact_content(WEB, web) == (web, frozenset())


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("annotation:example.com/[a-m]*", "'[' has no meaning there; * stands for any part"),
        ("env:API_KEY?", "'?' has no meaning there"),
        ("!env:LOG_[AB]", "'[' has no meaning there"),
        ("webs", "it is RESOURCE:PATH"),
        ("webs.example.com:", "it is RESOURCE:PATH"),
        ("env:", "it is RESOURCE:PATH"),
        ("Webs:spec.x", "it is RESOURCE:PATH"),
        ("webs.example.com:spec.users[0]", "has no meaning there"),
        ("webs.example.com:metadata.name", "begins with a field beside metadata"),
        ("webs.example.com:*", "begins with a field beside metadata"),
        ("!webs.example.com:spec.x", "only env: and annotation:"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Rules.parse([rule])
    assert why in str(refused.value)
    assert rule in str(refused.value)


def test_the_digest_tells_keys_and_rules_apart_and_not_their_order() -> None:
    rules = ["webs.example.com:spec.a", "webs.example.com:spec.b", "annotation:x", "annotation:y"]
    digest = redactor(*rules).digest
    random.Random(1).shuffle(rules)
    assert redactor(*rules).digest == digest
    others = [redactor(), redactor(*rules[1:]), Redactor(KEY[::-1], Rules.parse(rules)), Redactor(KEY, is_off=True)]
    assert len({digest, *(each.digest for each in others)}) == 5


def test_off_means_that_all_is_recorded_as_it_is() -> None:
    body = msgspec.json.encode(pod("hunter2"))
    off = Redactor(is_off=True)
    assert off.redact_body(PODS, body) is body
    assert off.redact_body(GroupResource(group="", resource="secrets"), b"{}") == b"{}"
    assert off.redact_text("hunter2", ["hunter2"]) == "hunter2"


def test_a_hash_is_not_written_back() -> None:
    read = redactor().redact_manifest(PODS, pod("hunter2"))
    with pytest.raises(ConfigurationError, match="which levelog never saw and cannot write"):
        redactor().refuse_hashes("apply pods/default/b", msgspec.json.encode(read))
    redactor().refuse_hashes("apply pods/default/b", b'{"note":"hmac-sha256:short"}')


def test_what_was_sealed_opens_with_the_same_key_and_for_the_same_purpose_only() -> None:
    sealed = redactor().seal(b"hunter2", "intent 1")
    assert b"hunter2" not in sealed
    assert sealed != redactor().seal(b"hunter2", "intent 1")
    assert redactor().unseal(sealed, "intent 1") == b"hunter2"
    for other, about, content in (
        (redactor(), "intent 2", sealed),
        (Redactor(KEY[::-1]), "intent 1", sealed),
        (redactor(), "intent 1", sealed[:-1]),
        (redactor(), "intent 1", b""),
    ):
        with pytest.raises(ConfigurationError, match="another redaction key, or was changed"):
            other.unseal(content, about)
    with pytest.raises(ConfigurationError, match="LEVELOG_REDACTION_KEY_FILE"):
        Redactor().seal(b"x", "")


VALUES = st.text(min_size=6, max_size=20).filter(lambda value: value not in "[redacted]")


@given(VALUES, st.sampled_from([str, repr, json.dumps, lambda v: quote(v, safe="", errors="replace")]))
def test_no_value_is_left_in_whatever_form_it_is_quoted(value: str, form: object) -> None:
    assert callable(form)
    quoted = form(value)
    text = scrub(f"Invalid value: {quoted}: is refused", [value])
    assert value not in text
    assert text.endswith(": is refused")


@given(st.binary(min_size=6, max_size=30).map(lambda b: b.hex()))
def test_base64_of_a_value_is_replaced_too(value: str) -> None:
    for encoded in (b64encode(value.encode()), urlsafe_b64encode(value.encode()).rstrip(b"=")):
        assert scrub(f'{{"password":"{encoded.decode()}"}}', [value]) == '{"password":"[redacted]"}'


def test_a_manifest_quoted_within_json_hides_its_values() -> None:
    value = 'pass"word\\<x>'
    manifest = json.dumps({"value": value})
    for text in (manifest, json.dumps(manifest), manifest.replace("<", "\\u003c").replace(">", "\\u003e")):
        assert "word" not in scrub(text, [value])


def test_short_values_are_replaced_as_words_of_their_own() -> None:
    assert (
        scrub('value "web" of web-2 in websites: web', ["web"]) == 'value "[redacted]" of web-2 in websites: [redacted]'
    )
    assert scrub("1 of 12", ["1", "12", ""]) == "1 of 12"


@pytest.mark.parametrize("kept", range(6, 12))
def test_the_beginning_of_a_value_at_a_cut_is_replaced(kept: int) -> None:
    assert scrub(f"denied: {'hunter2-canary'[:kept]}", ["hunter2-canary"]) == "denied: [redacted]"


def test_the_longer_of_two_values_goes_first() -> None:
    assert scrub("hunter2hunter2", ["hunter2", "hunter2hunter2"]) == "[redacted]"


def test_long_values_that_were_redacted_lately_are_hidden_in_any_text() -> None:
    redactor = Redactor(b"0123456789abcdef")
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "correct horse", "b": "short"}}
    redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    assert redactor.redact_text("ValueError: 'correct horse' short") == "ValueError: '[redacted]' short"
    assert redactor.redact_text("a short text", ["short"]) == "a [redacted] text"


def test_values_that_were_redacted_lately_are_forgotten_before_they_fill_the_memory() -> None:
    redactor = Redactor(b"0123456789abcdef")
    for number in range(40):
        secret = {"metadata": {"name": "s"}, "stringData": {"a": f"{number:03}" + "x" * (MOST_CHARACTERS // 20)}}
        redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    newest, oldest = (f"{number:03}" + "x" * (MOST_CHARACTERS // 20) for number in (39, 0))
    assert redactor.redact_text(newest) == "[redacted]"
    assert redactor.redact_text(oldest) == oldest
