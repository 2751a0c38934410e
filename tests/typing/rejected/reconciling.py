"""Mistakes in reconcile functions and intents: both type checkers report each line that is marked, and no other."""

from collections.abc import Iterator

from levelog import Intent, Level, Operator, Resource, Struct, apply, create, delete, patch, patch_status

op = Operator("webs")


class WebSpec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


@op.view
def sizes(web: Web) -> Level[dict[str, int]]:
    return Level({"a": web.spec.replicas}, {})


def size(web: Web) -> int:
    return web.spec.replicas


@op.reconcile(sizes)
def converge(web: Web, level: Level[dict[str, int]]) -> Iterator[Intent]:
    for name in level.drift.absent:  # error: missing, extra, changed
        yield delete(Web, name)
    yield delete("shop")  # error: a class comes first
    yield delete(Web, "shop", propagation="Never")  # error: no such propagation
    yield apply("shop")  # error: a manifest
    yield apply({}, forced=True)  # error: no such option
    yield create({}, force=True)  # error: apply alone forces
    yield patch(Web, {"spec": {}})  # error: no name
    yield patch_status(Web, {"replicas": 1})  # error: an object, not its class
    yield level.desired["a"]  # error: not an intent
    level.desired.push("b")  # error: no such method
    yield delete(Web, web.metadata.labels["a"])  # error: only LabelledResource has labels


@op.reconcile(size)  # error: not a view
def shrink(web: Web) -> Iterator[Intent]:
    yield delete(web)


@op.reconcile(sizes)  # error: yields no intents
def count(web: Web) -> Iterator[int]:
    yield 1


@op.reconcile(sizes, writes=[Web])  # error: a mapping
def write(web: Web) -> None:
    return None


@op.reconcile(sizes, writes={Web: ["replace"]})  # error: no such verb
def rewrite(web: Web) -> None:
    return None


@op.reconcile(sizes, writes={Web: "apply"})  # error: a list of verbs
def overwrite(web: Web) -> None:
    return None


@op.reconcile(sizes, timeout=30)  # error: a timedelta
async def wait(web: Web) -> list[Intent]:
    return []
