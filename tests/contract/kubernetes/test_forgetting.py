"""What is answered once the server no longer has the history that a client starts from."""

from rigs.customresources import webs_of

from .conftest import Forgetful, new_namespace


async def test_watches_pages_and_exact_versions_from_before_are_gone(forgetful: Forgetful) -> None:
    api = forgetful.api
    webs = await webs_of(api, await new_namespace(api))
    for name in "abc":
        await webs.create(name)
    old = (await api.get(webs.at("a"))).version
    first = await api.get(webs.path, limit="1")
    await api.delete(webs.at("b"))
    await forgetful.forget()

    async with api.watch(webs.path, resourceVersion=old) as events:
        seen = await events.rest()
    assert [event["type"] for event in seen] == ["ERROR"]
    status = seen[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {old} (")
    # From now on, and by listing anew, everything is seen.
    listed = await api.get(webs.path)
    assert listed.names == ["a", "c"]

    exact = await api.get(webs.path, resourceVersion=old, resourceVersionMatch="Exact")
    assert (exact.code, exact.reason) == (410, "Expired")

    gone = await api.get(webs.path, limit="1", **{"continue": first.metadata["continue"]})
    assert (gone.code, gone.reason) == (410, "Expired")
    rest = await api.get(webs.path, limit="5", **{"continue": gone.metadata["continue"]})
    assert rest.names == ["c"], "the next page can be had inconsistently"

    await api.delete(webs.at("a"))
    (event,) = await api.watched(webs.path, 1, resourceVersion=listed.version)
    assert event["type"] == "DELETED"
