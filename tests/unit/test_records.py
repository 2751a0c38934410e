from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog.errors import RecordError
from levelog.wire.envelope import decode, encode
from levelog.wire.objects import MAX_VERSION, GroupResource, ObjectKey, Uid, Version
from levelog.wire.records import (
    BookmarkNoted,
    ControlRecord,
    GapNoted,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
    SyncFinished,
    SyncStarted,
    TargetObserved,
    Written,
)

WEBS = GroupResource(group="example.com", resource="webs")
SHOP = ObjectKey(group="example.com", resource="webs", namespace="default", name="shop")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

object_records = st.builds(
    lambda cls, version, **fields: cls(key=SHOP, uid=Uid("u"), version=Version(version), time=NOON, **fields),
    cls=st.sampled_from([ObjectSeen, ObjectDeleted]),
    version=st.integers(min_value=1, max_value=MAX_VERSION),
    origin=st.sampled_from(["list", "watch"]),
    written=st.sampled_from([Written(), Written(manager="kubectl", at="2026-01-01T00:00:00Z")]),
    traceparent=st.sampled_from(["", f"00-{7:032x}-{8:016x}-01"]),
    body=st.binary(max_size=50),
)


@given(object_records)
def test_an_object_record_reads_back_with_its_payload_untouched(record: ObjectSeen | ObjectDeleted) -> None:
    headers, payload = encode(record, record_id="1", source="ingest")
    assert payload is record.body
    assert decode(headers, payload) == record


@pytest.mark.parametrize(
    "record",
    [
        SyncStarted(resource=WEBS, sync_id="s", time=NOON),
        SyncFinished(resource=WEBS, sync_id="s", version=Version(7), time=NOON),
        GapNoted(resource=WEBS, reason="410", since=Version(3), time=NOON),
        BookmarkNoted(resource=WEBS, version=Version(9), time=NOON),
        ReceiptNoted(
            application="webs",
            key="k",
            view="webs/pods",
            parent=SHOP,
            parent_uid=Uid("u"),
            round=2,
            verb="apply",
            target=ObjectKey.parse("pods/default/shop-0"),
            outcome="written",
            target_uid="p",
            target_version=12,
            time=NOON,
        ),
        TargetObserved(
            application="webs",
            key="k",
            view="webs/pods",
            parent=SHOP,
            parent_uid=Uid("u"),
            target=ObjectKey.parse("pods/default/shop-0"),
            target_version=12,
            time=NOON,
        ),
    ],
)
def test_a_control_record_reads_back(record: ControlRecord) -> None:
    headers, payload = encode(record, record_id="1", source="ingest")
    assert headers["ce-specversion"] == "1.0"
    assert decode(headers, payload) == record


@given(
    st.dictionaries(st.sampled_from(["ce-type", "levelog-envelope", "ce-subject", "levelog-uid"]), st.text()),
    st.binary(),
)
def test_nonsense_ends_in_a_record_error_and_nothing_else(headers: dict[str, str], payload: bytes) -> None:
    with pytest.raises(RecordError):
        decode(headers, payload)
