"""What is answered once the server no longer has the history that a client starts from."""

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs, webs_of

from .conftest import Forgetful, new_namespace


async def some_webs(api: ClusterClient) -> Webs:
    webs = await webs_of(api, await new_namespace(api))
    for name in "abc":
        await webs.create(name)
    return webs


async def test_a_watch_from_before_is_told_that_it_is_gone(forgetful: Forgetful) -> None:
    webs = await some_webs(forgetful.api)
    old = (await forgetful.api.get(webs.at("a"))).version
    await forgetful.forget()
    async with forgetful.api.watch(webs.path, resourceVersion=old) as events:
        seen = await events.rest()
    assert [event["type"] for event in seen] == ["ERROR"]
    status = seen[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {old} (")
    # From now on, and by listing anew, everything is seen.
    listed = await forgetful.api.get(webs.path)
    assert listed.names == ["a", "b", "c"]
    await forgetful.api.delete(webs.at("b"))
    (event,) = await forgetful.api.watched(webs.path, 1, resourceVersion=listed.version)
    assert event["type"] == "DELETED"


async def test_the_next_page_is_gone_but_can_be_had_inconsistently(forgetful: Forgetful) -> None:
    webs = await some_webs(forgetful.api)
    first = await forgetful.api.get(webs.path, limit="1")
    await forgetful.api.delete(webs.at("b"))
    await forgetful.forget()
    refused = await forgetful.api.get(webs.path, limit="1", **{"continue": first.metadata["continue"]})
    assert (refused.code, refused.reason) == (410, "Expired")
    rest = await forgetful.api.get(webs.path, limit="5", **{"continue": refused.metadata["continue"]})
    assert rest.names == ["c"]


async def test_an_exact_version_from_before_is_gone(forgetful: Forgetful) -> None:
    webs = await some_webs(forgetful.api)
    old = (await forgetful.api.get(webs.at("a"))).version
    await forgetful.forget()
    refused = await forgetful.api.get(webs.path, resourceVersion=old, resourceVersionMatch="Exact")
    assert (refused.code, refused.reason) == (410, "Expired")
