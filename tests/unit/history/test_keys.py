"""Which field of an object put it under the key of an index."""

from typing import Any

import msgspec
import pytest

from levelog_history.differences import Difference
from levelog_history.explaining import explain
from levelog_history.happenings import Happened
from levelog_history.keys import key_fields, wake_text
from levelog_history.revisions import Happened as Word
from levelog_history.revisions import Revision
from levelog_store.decide.decisions import Read
from rigs.pastdecisions import decision
from rigs.webs import NOON

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "labels": {"app": "shop", "tier": "a"},
        "ownerReferences": [{"kind": "Web", "name": "shop", "uid": "u1"}],
    },
    "spec": {"nodeName": "n1", "volumes": [{"claim": "c1"}], "ready": True},
}


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ('"shop"', '"shop", its label app'),
        ('"a"', '"a", its label tier or name'),
        ('"c1"', '"c1", its spec.volumes[0].claim'),
        ('["default","shop"]', '["default","shop"], its namespace and label app'),
        ('["example.com","Web","default","u1"]', "its owner, Web shop"),
        ("[]", ""),
        ('["default","blog"]', ""),
        ('["example.com","Web","default","u2"]', ""),
        ('"blog"', ""),
        ("true", ""),
        ("null", ""),
        ("1", ""),
    ],
)
def test_a_key_is_told_by_the_fields_that_read_so(key: str, fields: str) -> None:
    assert key_fields(key, POD) == fields


def woken(happened: Word, body: dict[str, Any], *differences: Difference) -> str:
    """What is said of a record that made another value of the key "shop"."""
    revision = Revision(
        sequence=7,
        time=NOON,
        object="pods/default/a",
        happened=happened,
        uid="u",
        version=1,
        differences=[*differences],
        body=msgspec.json.encode(body),
    )
    read = Read(index="webs/images", key='"shop"', version=7, content=b'["a"]')
    made = decision("webs/pods", "webs.example.com/default/shop", 7, reads=[read])
    [explained] = explain([made], {}, Happened(entries={7: [revision]}, receipts={}, others={}))
    return wake_text(explained, explained.causes[0])


def test_a_record_is_told_by_where_its_object_stands_or_stood() -> None:
    assert woken("created", POD) == 'pods/default/a is in images under "shop", its label app'
    assert woken("deleted", POD) == 'pods/default/a was in images under "shop", its label app'
    other = {"metadata": {"name": "a", "labels": {"app": "blog"}}}
    left = Difference(path="metadata.labels.app", before="shop", after="blog")
    assert (
        woken("changed", other, left) == 'pods/default/a was in images under "shop", its metadata.labels.app until then'
    )
    assert woken("changed", other) == ""
