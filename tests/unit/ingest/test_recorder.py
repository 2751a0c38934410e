from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ObjectTooLarge, RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, GroupResource
from levelog_base.wire.records import only_metadata, refuse_left_out
from levelog_ingest.recorder import LAST_APPLIED, Recorder, trim
from levelog_ingest.status import ResourceStatus, WatchedResource
from levelog_log.messages import MessageWriter

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MANAGED = st.none() | st.lists(
    st.fixed_dictionaries(
        {"manager": st.text(max_size=8), "time": st.dates().map(lambda day: f"{day}T00:00:00Z"), "fieldsV1": JSON}
    ),
    max_size=3,
)
ANNOTATIONS = st.dictionaries(st.sampled_from(["a", "b", LAST_APPLIED]), st.text(max_size=20))
METADATA = st.fixed_dictionaries(
    {"name": st.just("w"), "uid": st.just("u"), "resourceVersion": st.integers(1, 10**12).map(str)},
    optional={"managedFields": MANAGED, "annotations": ANNOTATIONS, "namespace": st.just("default")},
)
OBJECTS = st.fixed_dictionaries(
    {"metadata": METADATA}, optional={"a": JSON, "spec": JSON, "kind": st.just("Web"), "apiVersion": st.just("v1")}
)


def reordered(value: dict[str, Any], randoms: Random) -> dict[str, Any]:
    """The members in another order: no server promises one."""
    names = list(value)
    randoms.shuffle(names)
    return {name: value[name] for name in names}


def without_what_is_cut(given_object: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in given_object["metadata"].items() if name != "managedFields"}
    if "annotations" in metadata:
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != LAST_APPLIED}
    return {**given_object, "metadata": metadata}


@given(OBJECTS, st.randoms(use_true_random=False))
def test_just_managed_fields_and_last_applied_are_cut(value: dict[str, Any], randoms: Random) -> None:
    value = reordered({**value, "metadata": reordered(value["metadata"], randoms)}, randoms)
    assert msgspec.json.decode(trim(msgspec.json.encode(value)).body) == without_what_is_cut(value)


@given(OBJECTS)
def test_json_with_white_space_is_cut_too(value: dict[str, Any]) -> None:
    spaced = msgspec.json.format(msgspec.json.encode(value), indent=2)
    assert msgspec.json.decode(trim(spaced).body) == without_what_is_cut(value)


def test_what_stays_keeps_its_bytes() -> None:
    # Numbers and escapes that a decoder would write in another way.
    before = b'{"spec":{"n":1.50,"t":"\\u0041\\/"},"metadata":{"name":"w","uid":"u","resourceVersion":"7"'
    body = before + b',"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]}}'
    assert trim(body).body == before + b"}}"


def test_a_look_alike_elsewhere_is_not_cut() -> None:
    managed = [{"manager": "m", "time": "2026-01-01T00:00:00Z"}]
    inner = {"metadata": {"name": "inner", "managedFields": managed}}
    value = {
        "a": inner,
        "metadata": {
            "annotations": {"text": '"managedFields":' + msgspec.json.encode(managed).decode()},
            "name": "w",
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": managed,
        },
    }
    trimmed = msgspec.json.decode(trim(msgspec.json.encode(value)).body)
    assert trimmed == without_what_is_cut(value)
    assert trimmed["a"] == inner


def test_manager_and_time_of_the_newest_entry_are_told() -> None:
    managed = [
        {"manager": "old", "time": "2026-01-01T00:00:00Z"},
        {"manager": "applied", "time": "2026-03-01T00:00:00Z"},
        {"manager": "new", "time": "2026-03-01T00:00:00Z"},
        {"manager": "middle", "time": "2026-02-01T00:00:00Z"},
    ]
    value = {"metadata": {"name": "w", "uid": "u", "resourceVersion": "7", "managedFields": managed}}
    written = trim(msgspec.json.encode(value)).written
    assert (written.manager, written.at) == ("new", "2026-03-01T00:00:00Z")


def test_an_item_of_a_list_is_given_the_kind_that_it_lacks() -> None:
    item = b'{"metadata":{"name":"w","uid":"u","resourceVersion":"7"}}'
    body = msgspec.json.decode(trim(item, api_version="v1", kind="Pod").body)
    assert (body["kind"], body["apiVersion"]) == ("Pod", "v1")
    own = b'{"kind":"Web","apiVersion":"v2","metadata":{"name":"w","uid":"u","resourceVersion":"7"}}'
    assert trim(own, api_version="v1", kind="Pod").body == own


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"{}",
        b'{"metadata":{"name":"w","uid":"u"}}',
        b'{"metadata":{"name":"w","uid":"u","resourceVersion":"abc"}}',
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RecordError):
        trim(body)


def test_of_a_large_object_its_identity_and_owners_are_kept() -> None:
    metadata = {"name": "w", "uid": "u", "resourceVersion": "7", "ownerReferences": [{"uid": "o"}]}
    value = {"apiVersion": "v1", "kind": "Web", "metadata": {**metadata, "annotations": {"x": "y"}}, "spec": "z" * 9999}
    body = msgspec.json.encode(value)
    small = only_metadata(body, "a limit of 1")
    assert msgspec.json.decode(small) == {
        "levelog/left-out": {"reason": "a limit of 1", "bytes": len(body), "sha256": sha256(body).hexdigest()},
        "apiVersion": "v1",
        "kind": "Web",
        "metadata": {**metadata, "annotations": {"x": "y"}},
    }
    with pytest.raises(ObjectTooLarge, match=rf"^w has {len(body)} bytes, which is more than the log takes"):
        refuse_left_out(small)
    refuse_left_out(body)
    least = msgspec.json.decode(only_metadata(body, "a limit of 1", is_least=True))
    assert least["metadata"] == {"name": "w", "uid": "u", "resourceVersion": "7"}


def test_a_manager_whose_name_no_database_takes_is_told_as_it_can_be() -> None:
    managed = [{"manager": "a\0b", "time": "2026-01-01T00:00:00Z"}]
    value = {"metadata": {"name": "w", "uid": "u", "resourceVersion": "7", "managedFields": managed}}
    assert trim(msgspec.json.encode(value)).written.manager == r"a\0b"


def test_an_object_that_needs_a_key_is_left_out_with_words_that_say_so(caplog: pytest.LogCaptureFixture) -> None:
    pods = GroupResource(group="", resource="pods")
    status = ResourceStatus(watched=WatchedResource(resource=pods, version="v1"))
    recorder = Recorder(MessageWriter(Cluster("c"), 1, "ingest"), Redactor(), status)
    metadata = {"name": "w", "namespace": "d", "uid": "u", "resourceVersion": "7"}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"env": [{"name": "A", "value": "s3cret"}]}]}}
    _, message = recorder.object_message(msgspec.json.encode(pod), origin="list")
    assert "LEVELOG_REDACTION_KEY_FILE" in msgspec.json.decode(message.payload)["error"]
    assert [record.exc_info for record in caplog.records] == [None]
