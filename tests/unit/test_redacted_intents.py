"""What is stored of intents whose manifests hold secret values."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from levelog import Intent, Level, Operator, apply, create, patch
from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import SECRETS, GroupResource
from levelog_processors.decide.intents import RowInputs, intent_rows
from levelog_processors.decide.writetargets import aimed
from levelog_processors.program import Program
from levelog_store.decide.decisions import IntentRow
from levelog_store.rows import StoredObject
from rigs.kinds import Pod, Secret, Web
from rigs.storedobjects import stored_object

REDACTOR = Redactor(b"0123456789abcdef")
PODS = GroupResource(group="", resource="pods")
op = Operator("secrets")


@op.view
def written(web: Web) -> Level[str]:
    return Level(desired="", actual=web.metadata.name)


@op.reconcile(written, writes={Secret: ["apply", "create"], Pod: ["apply", "create"], Web: ["patch"]})
def write(web: Web, level: Level[str]) -> list[Intent]:
    return []


VIEW = Program([op]).views["secrets/written"]
PARENT = stored_object("webs.example.com/default/shop", uid="uid-shop")


def row(intent: Intent, held: dict[str, StoredObject] | None = None, redactor: Redactor = REDACTOR) -> IntentRow:
    inputs = RowInputs(identity=("cluster", "webs"), targets=held or {}, is_watched=lambda _: True, redactor=redactor)
    [made] = intent_rows(inputs, VIEW, PARENT, 1, [aimed(VIEW, PARENT, intent)])
    return made


def secret(value: str, field: str = "stringData") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, field: {"password": value}}


def pod(value: str) -> dict[str, Any]:
    container = {"name": "web", "env": [{"name": "TOKEN", "value": value}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize("intent", [apply(secret("hunter2-x")), create(pod("hunter2-x"))])
def test_a_body_with_a_secret_value_is_stored_encrypted_and_shown_redacted(intent: Intent) -> None:
    made = row(intent)
    assert made.sealed is not None
    stored = msgspec.json.encode(msgspec.structs.asdict(made)) + made.sealed
    assert b"hunter2" not in stored
    assert encoded("hunter2-x").encode() not in stored
    assert b"hmac-sha256:" in made.body
    sent = msgspec.json.decode(REDACTOR.unseal(made.sealed, made.key))
    assert sent["metadata"]["ownerReferences"][0]["name"] == "shop"
    assert encoded("hunter2-x") in str(sent) or "hunter2-x" in str(sent)


def test_what_holds_no_secret_value_is_stored_as_it_is() -> None:
    made = row(patch(Web, "shop", {"spec": {"replicas": 3}}))
    assert (made.body, made.sealed) == (b'{"spec":{"replicas":3}}', None)


def test_string_data_is_sent_as_data() -> None:
    made = row(apply(secret("hunter2-x")))
    assert made.sealed is not None
    sent = msgspec.json.decode(REDACTOR.unseal(made.sealed, made.key))
    assert sent["data"] == {"password": encoded("hunter2-x")}
    assert "stringData" not in sent


def test_invariant_7_the_key_tells_values_apart_and_can_be_computed_with_the_redaction_key_only() -> None:
    one, same, other = (row(apply(secret(value))).key for value in ("one", "one", "other"))
    assert one == same != other
    assert row(apply(secret("one")), redactor=Redactor(b"another key of 16+")).key != one


def test_a_target_that_is_recorded_with_the_same_value_needs_no_write() -> None:
    def recorded(resource: GroupResource, manifest: dict[str, Any]) -> dict[str, StoredObject]:
        metadata = {**manifest["metadata"], "namespace": "default", "uid": "u", "ownerReferences": [OWNER]}
        body = REDACTOR.redact_body(resource, msgspec.json.encode(manifest | {"metadata": metadata}))
        name = f"{resource}/default/{metadata['name']}"
        return {name: msgspec.structs.replace(PARENT, object=name, uid="u", version=3, body=body)}

    held_secret = recorded(SECRETS, secret(encoded("hunter2"), "data"))
    assert row(apply(secret("hunter2")), held_secret).state == "satisfied"
    assert row(apply(secret("hunter3")), held_secret).state == "pending"
    held_pod = recorded(PODS, pod("hunter2"))
    assert row(apply(pod("hunter2")), held_pod).state == "satisfied"
    assert row(apply(pod("hunter3")), held_pod).state == "pending"


def test_a_hash_that_was_read_is_not_written() -> None:
    read = REDACTOR.redact_manifest(PODS, pod("hunter2"))
    with pytest.raises(ConfigurationError, match="apply of pods/default/p: it holds a hash"):
        row(apply(read))


OWNER = {
    "apiVersion": "example.com/v1",
    "kind": "Web",
    "name": "shop",
    "uid": "uid-shop",
    "controller": True,
    "blockOwnerDeletion": True,
}
