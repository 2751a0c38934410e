import random
from typing import Any

import msgspec
import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.secrets.secretrules import Rules
from levelog_base.wire.objects import GroupResource, ObjectKey

KEY = b"0123456789abcdef"
PODS = GroupResource(group="", resource="pods")
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
    annotations = {
        "kopf.zalando.org/last-handled-configuration": "a",
        "vault.example.com/token": "b",
        "team": "web",
    }
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
