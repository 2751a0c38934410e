"""Watches: from a version on, with selectors, as streaming lists, with bookmarks."""

from typing import Any

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

Json = dict[str, Any]
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def told(events: list[Json]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def test_a_watch_shows_each_change_after_its_version_once_and_in_order(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    await webs.create("b")
    changed = await api.merge(webs.at("a"), {"spec": {"image": "two"}})
    await api.merge(webs.at("a"), {"spec": {"image": "two"}})
    await api.delete(webs.at("b"))
    await webs.create("b")
    events = await api.watched(webs.path, 4, resourceVersion=made.version)
    assert told(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "b")]
    assert events[1]["object"] == changed.body
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(made.version)


async def test_a_deletion_shows_the_last_state_at_a_version_of_its_own(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a", {"image": "one", "note": "last"})
    await api.delete(webs.at("a"))
    (event,) = await api.watched(webs.path, 1, resourceVersion=made.version)
    assert event["type"] == "DELETED"
    assert event["object"]["spec"] == made.body["spec"]
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made.version)


async def test_the_last_finalizer_is_still_there_in_the_deletion(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a", finalizers=["example.com/hold"])
    await api.delete(webs.at("a"))
    await api.merge(webs.at("a"), {"metadata": {"finalizers": None}})
    marked, gone = await api.watched(webs.path, 2, resourceVersion=made.version)
    assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
    assert marked["object"]["metadata"]["deletionTimestamp"]
    assert gone["object"]["metadata"]["finalizers"] == ["example.com/hold"]


async def test_a_pod_is_marked_before_it_goes(api: ClusterClient, pods: str) -> None:
    containers = [{"name": "c", "image": "x"}]
    made = await api.create(pods, {"metadata": {"name": "a"}, "spec": {"containers": containers}})
    await api.delete(f"{pods}/a")
    events = await api.watched(pods, 2, resourceVersion=made.version)
    assert told(events) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_changes_are_shown_while_they_happen(api: ClusterClient, webs: Webs) -> None:
    version = (await api.get(webs.path)).version
    async with api.watch(webs.path, resourceVersion=version) as events:
        for name in "ab":
            made = await webs.create(name)
            assert await events.next() == {"type": "ADDED", "object": made.body}


async def test_an_object_enters_and_leaves_a_selector(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    await api.merge(webs.at("a"), {"metadata": {"labels": {"app": "x"}}})
    inside = await api.merge(webs.at("a"), {"spec": {"image": "two"}})
    left = await api.merge(webs.at("a"), {"metadata": {"labels": {"app": "y"}}, "spec": {"image": "three"}})
    await api.merge(webs.at("a"), {"spec": {"image": "four"}})
    await api.merge(webs.at("a"), {"metadata": {"labels": {"app": "x"}}})
    await api.delete(webs.at("a"))
    events = await api.watched(webs.path, 5, resourceVersion=made.version, labelSelector="app=x")
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    # It is shown as it was when it was last inside, at the version at which it left.
    gone = events[2]["object"]
    assert gone["spec"] == inside.body["spec"]
    assert gone["metadata"]["labels"] == {"app": "x"}
    assert gone["metadata"]["resourceVersion"] == left.version


async def test_one_object_is_watched_by_its_name(api: ClusterClient, webs: Webs) -> None:
    version = (await webs.create("a")).version
    await webs.create("b")
    await api.merge(webs.at("b"), {"spec": {"image": "two"}})
    await api.delete(webs.at("a"))
    events = await api.watched(webs.path, 1, resourceVersion=version, fieldSelector="metadata.name=a")
    assert told(events) == [("DELETED", "a")]
    # The path of an object is read, not watched.
    assert (await api.get(webs.at("b"), watch="1")).body["kind"] == "Web"


@pytest.mark.parametrize("version", ["", "0"])
async def test_without_a_version_a_watch_begins_with_what_is_there(
    api: ClusterClient, webs: Webs, version: str
) -> None:
    await webs.create("b")
    await webs.create("a")
    async with api.watch(webs.path, resourceVersion=version) as events:
        assert sorted(told([await events.next(), await events.next()])) == [("ADDED", "a"), ("ADDED", "b")]
        await webs.create("c")
        assert told([await events.next()]) == [("ADDED", "c")]


async def test_a_watch_ends_at_its_timeout(api: ClusterClient, webs: Webs) -> None:
    version = (await webs.create("a")).version
    async with api.watch(webs.path, resourceVersion=version, timeoutSeconds="1") as events:
        assert await events.rest() == []


async def test_a_streaming_list_ends_its_first_part_with_a_bookmark(api: ClusterClient, webs: Webs) -> None:
    await webs.create("b")
    last = await webs.create("a")
    async with api.watch(webs.path, **STREAMING) as events:
        assert told([await events.next(), await events.next()]) == [("ADDED", "a"), ("ADDED", "b")]
        bookmark = await events.next()
        assert bookmark["type"] == "BOOKMARK"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) >= int(last.version)
        assert bookmark["object"]["kind"] == "Web"
        assert bookmark["object"]["apiVersion"] == "contract.example.com/v1"
        await api.delete(webs.at("a"))
        assert told([await events.next()]) == [("DELETED", "a")]


async def test_a_streaming_list_of_nothing_is_a_bookmark(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    (event,) = await api.watched(webs.path, 1, **STREAMING, labelSelector="app=none")
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_streaming_list_waits_for_no_more_than_the_version_asked_for(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    events = await api.watched(webs.path, 2, **STREAMING, resourceVersion=made.version)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


async def test_without_bookmarks_a_streaming_list_does_not_say_where_it_ends(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1"}
    async with api.watch(webs.path, **query) as events:
        assert told(await events.rest()) == [("ADDED", "a")]


async def test_initial_events_can_be_declined(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    query = {**STREAMING, "sendInitialEvents": "false"}
    async with api.watch(webs.path, **query) as events:
        await webs.create("b")
        assert told([await events.next()]) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
    ],
    ids=["no match", "wrong match", "match alone"],
)
async def test_parameters_of_streaming_lists_go_together(api: ClusterClient, webs: Webs, query: dict[str, str]) -> None:
    refused = await api.get(webs.path, watch="1", timeoutSeconds="1", **query)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert {field for field, _ in refused.faults} == {"resourceVersionMatch"}


async def test_malformed_watches_are_refused(api: ClusterClient, webs: Webs) -> None:
    for query, code in (
        ({"labelSelector": "a b"}, 400),
        ({"fieldSelector": "spec.image=one"}, 400),
        ({"timeoutSeconds": "soon"}, 400),
        ({"resourceVersion": "abc"}, 500),
    ):
        assert (await api.get(webs.path, **{"watch": "1", "timeoutSeconds": "1", **query})).code == code, query


async def test_a_watch_across_namespaces_sees_other_namespaces(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    await webs.create("b")
    everywhere = "/apis/contract.example.com/v1/webs"
    async with api.watch(everywhere, resourceVersion=made.version) as events:
        event = await events.next()
        while event["object"]["metadata"]["namespace"] != made.metadata["namespace"]:
            event = await events.next()
    assert told([event]) == [("ADDED", "b")]


async def test_a_core_kind_is_watched_whole(api: ClusterClient, config_maps: str) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    before = str(int(made.version) - 1)
    query = {"resourceVersion": before, "fieldSelector": "metadata.name=a"}
    (event,) = await api.watched(config_maps, 1, **query)
    assert event == {"type": "ADDED", "object": made.body}
