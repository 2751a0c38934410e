"""What a watch says of itself, for probes."""

from datetime import UTC, datetime, timedelta

from levelog.resources import EXTERNAL_GROUP
from levelog_base.wire.objects import GroupResource, Version
from levelog_ingest.status import ResourceStatus, WatchedResource

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
SILENCE = timedelta(seconds=100)
LATER = NOON + SILENCE + timedelta(seconds=1)
PODS = WatchedResource(resource=GroupResource("", "pods"), version="v1")


def test_a_watch_says_what_is_wrong_until_it_hears_again() -> None:
    status = ResourceStatus(watched=PODS, objects=300, silence=SILENCE)
    assert status.trouble(NOON) == "pods: not listed yet, 300 objects so far"
    status.version, status.last_contact = Version(7), NOON
    assert status.trouble(NOON + SILENCE) == ""
    assert status.trouble(LATER) == f"pods: nothing heard for {(LATER - NOON).total_seconds():.0f} s"
    status.detail = "may not list and watch pods"
    assert status.trouble(NOON) == "pods: may not list and watch pods"


def test_a_source_may_be_silent_for_as_long_as_it_likes() -> None:
    source = WatchedResource(resource=GroupResource(EXTERNAL_GROUP, "readings"), version="v1")
    assert ResourceStatus(watched=source, version=Version(1), last_contact=NOON).trouble(LATER) == ""
