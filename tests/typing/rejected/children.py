"""Mistakes in children and live indices: both type checkers report each line that is marked, and no other."""

from collections.abc import Iterator

from levelog import Intent, LiveIndex, Manifest, Operator, Resource, apply

op = Operator("webs")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


class Pod(Resource, version="v1", plural="pods"):
    pass


@op.children(Web, of="pods")  # error: a class
def named(web: Web) -> Manifest:
    return {}


@op.children(Web)  # error: of what?
def kindless(web: Web) -> Manifest:
    return {}


@op.children(Web, of=Pod)  # error: manifests, not intents
def applied(web: Web) -> Iterator[Intent]:
    yield apply({})


@op.children(Web, of=[Pod], force="no")  # error: a boolean
def forced(web: Web) -> Iterator[Manifest]:
    yield web.metadata.name  # error: a manifest


async def follow(phases: LiveIndex[str, int]) -> None:
    phases["a"]  # error: await phases.get("a")
    for _ in phases.changes("a"):  # error: async for
        pass
    await phases.get(1)  # error: keys are texts
    await phases.until("a", lambda values: values.phase == "Running")  # error: a collection
