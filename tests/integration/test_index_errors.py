"""What an index that raises does to the views that read it, on real processors."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from levelog import Index, Intent, Level, Operator, Owner, apply, delete
from levelog_base.wire.records import ObjectSeen
from rigs.processing import Processing
from rigs.typed import Pod, Web
from rigs.webs import deleted, pod, web


def operator_that_blocks() -> Operator:
    op = Operator("webs")

    @op.index(errors="block")
    def images(pod: Pod) -> Iterator[tuple[Owner, str]]:
        for container in pod.spec.containers:
            if owner := pod.metadata.controlled_by(Web):
                yield owner, f"{pod.metadata.name}={container.image}"

    @op.view
    def pods(web: Web, images: Index[Owner, str]) -> Level[set[str]]:
        return Level(wanted(web), set(images[web.as_owner]))

    op.reconcile(pods)(converge)
    return op


def operator_by_name() -> Operator:
    op = Operator("webs")

    @op.index
    def named(pod: Pod) -> Iterator[tuple[str, str]]:
        for container in pod.spec.containers:
            yield pod.metadata.name.partition("-")[0], f"{pod.metadata.name}={container.image}"

    @op.view
    def pods(web: Web, named: Index[str, str]) -> Level[set[str]]:
        return Level(wanted(web), set(named[web.metadata.name]))

    op.reconcile(pods)(converge)
    return op


def converge(web: Web, level: Level[set[str]]) -> Iterator[Intent]:
    for each in sorted(level.drift.missing):
        yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": each.partition("=")[0]}})
    for extra in sorted(level.drift.extra):
        yield delete(Pod, extra.partition("=")[0])


def wanted(web: Web) -> set[str]:
    return {f"{web.metadata.name}-{n}=a" for n in range(web.spec.replicas)}


def without_image(name: str, version: int, owner: str) -> ObjectSeen:
    """A pod that the index has no entry for, since its class cannot be made of it."""
    record = pod(name, version, owner=owner)
    return msgspec.structs.replace(record, body=record.body.replace(b'"image":"a"', b'"picture":"a"'))


async def shown(stack: Processing, name: str) -> tuple[Any, ...]:
    row = await stack.level(name)
    return tuple(row[column] for column in ("status", "actual", "round"))


async def told(stack: Processing, name: str) -> tuple[str, str]:
    """Status of a level, and its reason up to the kind of the error."""
    row = await stack.level(name)
    return row["status"], row["reason"].partition("Error: ")[0]


def owned(name: str, version: int) -> ObjectSeen:
    return pod(name, version, owner=f"uid-{name.partition('-')[0]}")


def broken(name: str, version: int) -> ObjectSeen:
    return without_image(name, version, f"uid-{name.partition('-')[0]}")


async def test_while_nobody_knows_whom_an_object_concerns_levels_go_on_say_so_and_delete_nothing(
    processing: partial[Processing],
) -> None:
    async with processing([operator_by_name()]) as stack:
        pods = (owned("shop-0", 3), owned("shop-1", 4), broken("other-0", 5))
        processor = await stack.begin(web("shop", 1), web("other", 2), *pods, version=5)
        left_out = "goes on, but deletes nothing: index webs/named leaves out pods/default/other-0: Validation"
        assert await told(stack, "shop") == ("drifting", f"does not delete pods/default/shop-1; {left_out}")
        assert await told(stack, "other") == ("settling", left_out)
        assert await stack.intents() == [("apply", "pods/default/other-0")]
        assert processor.index_failures == {"webs/named": 1}
        await stack.folded(await stack.tell(web("shop", 6, replicas=3)))
        assert await told(stack, "shop") == ("settling", left_out)
        assert ("apply", "pods/default/shop-2") in await stack.intents()
        await stack.folded(await stack.tell(owned("other-0", 7), web("shop", 8)))
        assert await stack.intents("pending") == [("delete", "pods/default/shop-1")]
        assert await told(stack, "shop") == ("settling", "")
        assert processor.index_failures == {}


async def test_a_blocked_level_stays_as_it_was_and_withdraws_nothing(processing: partial[Processing]) -> None:
    async with processing([operator_that_blocks()]) as stack:
        await stack.begin(web("shop", 1, replicas=2), pod("shop-0", 2, owner="uid-shop"), version=2)
        before = await stack.level("shop")
        poisoned = without_image("other", 3, "uid-other")
        await stack.folded(await stack.tell(poisoned, web("shop", 4, replicas=3)))
        after = await stack.level("shop")
        assert after["status"] == "blocked"
        same = ("desired", "actual", "drift", "round", "attempts", "decided_inputs")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        assert await stack.intents("pending") == [("apply", "pods/default/shop-1")]
        await stack.folded(await stack.tell(deleted(poisoned, 5)))
        assert await shown(stack, "shop") == ("settling", b'["shop-0=a"]', 2)
        assert await stack.intents("superseded") == [("apply", "pods/default/shop-1")]
        assert await stack.intents("pending") == [("apply", "pods/default/shop-1"), ("apply", "pods/default/shop-2")]
