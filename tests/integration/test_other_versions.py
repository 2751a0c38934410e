"""Another version of a resource is another list in the same log: what reads it waits, and nothing older counts."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from levelog import Index, Intent, Level, Operator, Owner, Resource, Struct, apply
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ObjectSeen, SyncFinished, SyncStarted
from levelog_store.look.levelpages import LevelQuery, read_level_page
from levelog_store.tables import intents, levels, objects
from rigs.kinds import Pod
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import WEBS, lists_done, pod, seen

OLD, NEW = "v1alpha1", "v1beta1"


class OldSpec(Struct):
    count: int


class OldWeb(Resource, group="example.com", version=OLD, plural="webs", kind="Web"):
    spec: OldSpec


class NewSpec(Struct):
    replicas: int = 0


class NewWeb(Resource, group="example.com", version=NEW, plural="webs", kind="Web"):
    spec: NewSpec


def operator(web_class: Any) -> Operator:
    op = Operator("webs")

    @op.index
    def pods(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(web_class):
            yield owner, pod.metadata.name

    def number(web: Any, pods: Index[Owner, str]) -> Level[int]:
        return Level(web.spec.count if isinstance(web, OldWeb) else web.spec.replicas, len(pods[web.as_owner]))

    def fill(web: Any, level: Level[int]) -> Iterator[Intent]:
        yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{web.metadata.name}-{level.actual}"}})

    number.__annotations__["web"] = fill.__annotations__["web"] = web_class
    op.reconcile(op.view(number))(fill)

    @op.view
    def alone(pod: Pod) -> Level[int]:
        return Level(0, 0)

    return op


def web(api_version: str, name: str, version: int, pods: int) -> ObjectSeen:
    """A Web as an API server shows it in a version: the same object, with other fields."""
    key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
    told = seen(key, version, f"uid-{name}", {"count" if api_version == OLD else "replicas": pods})
    body = {"apiVersion": f"example.com/{api_version}", **msgspec.json.decode(told.body)}
    return replace(told, body=msgspec.json.encode(body))


def listed(api_version: str, version: int) -> tuple[SyncStarted, SyncFinished]:
    begun, ended = lists_done(WEBS, version)
    said = {"api_version": f"example.com/{api_version}", "sync_id": f"{api_version}-{version}"}
    return replace(begun, **said), replace(ended, **said)


async def shown(stack: Processing, view: str = "number") -> dict[str, str]:
    async with stack.database.reading() as connection:
        lines = await read_level_page(connection, stack.scope, LevelQuery(view=f"webs/{view}"))
    return {line.parent.rpartition("/")[2]: line.status for line in lines}


async def told(stack: Processing, mark: SyncStarted | SyncFinished, *records: ObjectSeen) -> int:
    last = await stack.mark(mark)
    return max(last, await stack.tell(*records)) if records else last


async def bodies(stack: Processing) -> dict[str, str]:
    rows = [row for row in await stack.rows(objects) if row["resource"] == str(WEBS)]
    return {row["name"]: msgspec.json.decode(row["body"])["apiVersion"].partition("/")[2] for row in rows}


@pytest.fixture
async def begun(nats_server: NatsServer, database_url: str) -> tuple[str, str]:
    """A log and tables in which the older version has two Webs in sync, one of which will be deleted unseen."""
    async with Processing(nats_server.url, database_url, [operator(OldWeb)]) as stack:
        begin, end = listed(OLD, 20)
        pods_begin, pods_end = lists_done(pod("shop-0", 11).key.group_resource, 20)
        await stack.mark(pods_begin)
        await told(stack, begin, web(OLD, "shop", 10, 1), web(OLD, "lost", 12, 0))
        await stack.tell(pod("shop-0", 11, owner="uid-shop"))
        await stack.mark(pods_end)
        last = await stack.mark(end)
        stack.start()
        await stack.folded(last)
        assert await shown(stack) == {"shop": "in_sync", "lost": "in_sync"}
    return nats_server.url, database_url


async def test_newer_code_waits_for_a_list_in_its_version_which_replaces_what_is_held(begun: tuple[str, str]) -> None:
    async with Processing(*begun, [operator(NewWeb)]) as stack:
        processor = stack.start()
        await stack.until_folded_only(await stack.tell(web(OLD, "shop", 21, 1), pod("shop-0", 22, owner="uid-shop")))
        waiting = {"shop": "blocked", "lost": "blocked"}
        assert await shown(stack) == waiting
        begin, end = listed(NEW, 30)
        await stack.until_folded_only(await told(stack, begin, web(NEW, "shop", 21, 1), web(NEW, "new", 25, 0)))
        assert await shown(stack) == waiting
        assert processor.calls.functions.get("webs/number", 0) == 0
        await stack.folded(await stack.mark(end))
        assert await shown(stack) == {"shop": "in_sync", "new": "in_sync"}
        assert await bodies(stack) == {"shop": NEW, "new": NEW}
        assert await stack.rows(intents) == []
        await stack.folded(await stack.tell(web(NEW, "shop", 31, 2)))
        assert await stack.intents() == [("apply", "pods/default/shop-1")]


async def test_an_older_process_neither_turns_the_log_back_nor_changes_what_is_held(begun: tuple[str, str]) -> None:
    async with Processing(*begun, [operator(NewWeb)]) as stack:
        begin, end = listed(NEW, 30)
        await told(stack, begin, web(NEW, "shop", 10, 1), web(NEW, "lost", 12, 0))
        processor = stack.start()
        await stack.folded(await stack.mark(end))
        calls = processor.calls.functions["webs/number"]
        late_begin, late_end = listed(OLD, 40)
        await told(stack, late_begin, web(OLD, "shop", 33, 5), web(OLD, "other", 35, 5))
        await stack.folded(await stack.mark(late_end))
        assert await bodies(stack) == {"shop": NEW, "lost": NEW}
        assert await shown(stack) == {"shop": "in_sync", "lost": "in_sync"}
        assert processor.calls.functions["webs/number"] == calls
        assert await stack.rows(intents) == []
        await stack.folded(await stack.tell(web(NEW, "shop", 33, 1)))
        assert {row["name"]: row["version"] for row in await stack.rows(objects)}["shop"] == 33


async def test_older_code_that_still_runs_decides_nothing_once_the_newer_version_is_recorded(
    begun: tuple[str, str],
) -> None:
    async with Processing(*begun, [operator(OldWeb)]) as stack:
        begin, end = listed(NEW, 30)
        await told(stack, begin, web(NEW, "shop", 10, 1))
        processor = stack.start()
        await stack.until_folded_only(await stack.mark(end))
        await stack.until_folded_only(await stack.tell(web(NEW, "shop", 31, 3), pod("p", 32)))

        async def is_shown() -> bool:
            return await shown(stack, "alone") == {"shop-0": "in_sync", "p": "in_sync"}

        await until(is_shown, "the level of what is not concerned")
        assert processor.calls.functions == {"webs/alone": 1}
        (level,) = [row for row in await stack.rows(levels) if row["parent"].endswith("/shop")]
        assert level["status"] == "blocked"
        assert level["reason"] == (
            "webs.example.com is recorded in version example.com/v1beta1: waits for its list, and code that declares it"
        )
        assert await stack.rows(intents) == []
