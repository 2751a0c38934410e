"""Records of earlier versions are read by today's code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from levelog_base.errors import RecordError
from levelog_base.wire.envelope import ENVELOPE_VERSION, Message, decode, encode, upcast
from levelog_base.wire.objects import MAX_VERSION, ObjectKey, Uid, Version
from levelog_base.wire.records import ObjectDeleted, ObjectSeen, Record, Unreadable, Written
from rigs.webs import NOON

FILES: Final = Path(__file__).parent / "envelopes"
SHOP: Final = ObjectKey(group="example.com", resource="webs", namespace="default", name="shop")


class Kept(Struct):
    """One line of a file."""

    headers: dict[str, str]
    payload: str
    reads_as: dict[str, Any]


def kept(version: int) -> list[Kept]:
    text = (FILES / f"version-{version}.jsonl").read_text()
    return [msgspec.json.decode(line, type=Kept) for line in text.splitlines()]


def shown(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    if isinstance(body := getattr(record, "body", None), bytes):
        told["body"] = body.decode()
    return {"type": type(record).__name__, **told}


@pytest.mark.parametrize("version", range(1, ENVELOPE_VERSION + 1))
def test_records_of_each_version_are_read_as_they_were_meant(version: int) -> None:
    for each in kept(version):
        assert each.headers["levelog-envelope"] == str(version)
        told = shown(decode(each.headers, each.payload.encode()))
        assert {name: told[name] for name in each.reads_as} == each.reads_as


def test_there_is_a_record_of_each_type_in_the_version_that_is_written() -> None:
    types = {each.__name__ for each in get_args(Record)} - {Unreadable.__name__}  # that one is never written
    assert {each.reads_as["type"] for each in kept(ENVELOPE_VERSION)} == types


def test_what_is_written_holds_all_that_records_of_its_version_held() -> None:
    """A header or field that goes away, or changes its name, needs a new version."""
    for each in kept(ENVELOPE_VERSION):
        record = decode(each.headers, each.payload.encode())
        assert not isinstance(record, Unreadable)
        headers, payload = encode(record, record_id=each.headers["ce-id"], source=each.headers["ce-source"])
        assert each.headers.items() <= headers.items()
        before, now = msgspec.json.decode(each.payload), msgspec.json.decode(payload)
        assert {name: now[name] for name in before} == before


@given(
    st.builds(
        lambda cls, version, **fields: cls(key=SHOP, uid=Uid("u"), version=Version(version), time=NOON, **fields),
        cls=st.sampled_from([ObjectSeen, ObjectDeleted]),
        version=st.integers(min_value=1, max_value=MAX_VERSION),
        origin=st.sampled_from(["list", "watch"]),
        written=st.sampled_from([Written(), Written(manager="kubectl", at="2026-01-01T00:00:00Z")]),
        traceparent=st.sampled_from(["", f"00-{7:032x}-{8:016x}-01"]),
        body=st.binary(max_size=50),
    )
)
def test_an_object_record_reads_back_with_its_payload_untouched(record: ObjectSeen | ObjectDeleted) -> None:
    headers, payload = encode(record, record_id="1", source="ingest")
    assert payload is record.body
    assert decode(headers, payload) == record


def renamed(headers: Mapping[str, str], payload: bytes) -> Message:
    return {**headers, "levelog-envelope": "2", "ce-type": headers["type"]}, payload


def wrapped(headers: Mapping[str, str], payload: bytes) -> Message:
    return {**headers, "levelog-envelope": "3"}, b"[" + payload + b"]"


def test_a_record_passes_all_upcasters_from_its_version_on() -> None:
    upcasters = {1: renamed, 2: wrapped}
    headers, payload = upcast({"levelog-envelope": "1", "type": "t"}, b"1", upcasters=upcasters, newest=3)
    assert (headers["ce-type"], headers["levelog-envelope"], payload) == ("t", "3", b"[1]")
    headers, payload = upcast({"levelog-envelope": "2"}, b"1", upcasters=upcasters, newest=3)
    assert (headers["levelog-envelope"], payload) == ("3", b"[1]")


@pytest.mark.parametrize("version", ["99", "0", "x", "²", ""])
def test_another_version_is_refused_with_both(version: str) -> None:
    each = kept(1)[0]
    with pytest.raises(RecordError, match=f"{version!r} is not known; this levelog reads versions up to 1"):
        decode(each.headers | {"levelog-envelope": version}, each.payload.encode())
