import asyncio
import logging
import math
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert, text

from levelog_base.wire.records import ObjectDeleted, ObjectSeen
from levelog_log.notifications import Listener, Topic
from levelog_processors.upkeep import FIRST_STATISTICS
from levelog_store.owners.leases import Leases
from levelog_store.tables import intents, leases, objects
from rigs.lostcommits import keep, lose
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.waiting import until
from rigs.webs import PODS, WEBS, deleted, lists_done, pod, receipt, web


async def test_a_batch_of_decisions_is_one_line_of_the_log_at_info(
    processing: partial[Processing], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "levelog_processors.tables")

    async def said(lines: int) -> list[str]:
        async def are_said() -> bool:  # after the commit
            return len(caplog.messages) >= lines

        await until(are_said, "a line for what was decided")
        return caplog.messages

    async with processing() as stack:
        # None of them has to be reconciled, which a loaded machine may do a batch later.
        webs = [web(f"shop-{n}", 1 + n, replicas=0) for n in range(20)]
        await stack.begin(*webs, version=20)
        assert await said(1) == ["20 levels: 20 in_sync"]
        await stack.folded(await stack.tell(web("shop-0", 21, replicas=2)))
        assert (await said(2))[1:] == ["webs/pods of webs.example.com/default/shop-0 is settling"]


async def test_three_two_three_with_one_pod_running_is_still_two_more_pods(stack: Processing) -> None:
    await stack.listed(web("shop", 1, replicas=3), pod("shop-0", 2, owner="uid-shop"), version=2)
    last = await stack.tell(web("shop", 3, replicas=2), web("shop", 4, replicas=3))
    processor = stack.start()
    await stack.folded(last)
    assert await stack.intents() == [("apply", "pods/default/shop-1"), ("apply", "pods/default/shop-2")]
    assert processor.calls.functions == {"webs/pods": 1, "webs/converge": 1}


async def test_actuators_are_told_that_a_target_is_free_once_it_is_so_in_the_tables(
    stack: Processing, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await stack.first_write()
    await stack.stop()
    behind = {"key": "behind", "parent": "webs.example.com/default/mall", "parent_uid": "uid-mall"}
    unclaimed = {"state": "pending", "owner": "", "claim": 0, "attempts": 0, "expires_at": None}
    async with stack.database.transaction() as connection:
        await connection.execute(insert(intents).values(**claimed | behind | unclaimed))
    listener = stack.notifier.listen(Topic.INTENT)
    stack.start()
    assert await listener.wait(timedelta(seconds=30))  # for the partitions' new holder
    await stack.folded(0)
    found: list[str] = []
    publish = stack.notifier.publish

    async def noting(topic: Topic, *, but_not: Listener | None = None) -> None:
        if topic == Topic.INTENT:
            found.extend(row["state"] for row in await stack.rows(intents) if row["key"] == claimed["key"])
        await publish(topic, but_not=but_not)

    monkeypatch.setattr(stack.notifier, "publish", noting)
    await stack.tell(receipt(claimed, version=9))
    await until(lambda: bool(found), "a notification")
    assert found[0] == "written"


@pytest.mark.parametrize("last", [web("shop", 2, replicas=0), deleted(web("shop", 1), 2)], ids=["edited", "deleted"])
async def test_actuators_are_told_that_a_withdrawn_write_leaves_its_target_free(
    stack: Processing, monkeypatch: pytest.MonkeyPatch, last: ObjectSeen | ObjectDeleted
) -> None:
    await stack.begin(web("shop", 1, replicas=1), version=1)
    await until(lambda: stack.intents("pending"), "a write that nobody claims")
    found: list[str] = []
    publish = stack.notifier.publish

    async def noting(topic: Topic, *, but_not: Listener | None = None) -> None:
        if topic == Topic.INTENT:
            found.extend(row["state"] for row in await stack.rows(intents))
        await publish(topic, but_not=but_not)

    monkeypatch.setattr(stack.notifier, "publish", noting)
    await stack.tell(last)
    await until(lambda: "superseded" in found, "a notification")


async def test_invariant_13_an_empty_database_is_rebuilt_from_the_log_and_writes_nothing(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    async with Processing(nats_server.url, database_url) as stack:
        row = await stack.first_write()
        last = await stack.tell(receipt(row, version=5), pod("shop-0", 5, owner="uid-shop"))
        await stack.folded(last)
        before = await stack.level("shop")
    async with Processing(nats_server.url, f"sqlite:///{tmp_path}/empty.db") as rebuilt:
        rebuilt.start()
        await rebuilt.folded(last)
        after = await rebuilt.level("shop")
        assert await rebuilt.rows(intents) == []
        same = ("status", "desired", "actual", "drift", "round", "parent_uid")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}


async def test_invariant_13_a_log_made_anew_is_noticed_and_rounds_go_on(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url) as stack:
        await stack.begin(web("shop", 1, replicas=1), web("lost", 1), version=1)
    async with NatsServer() as another, Processing(another.url, database_url) as stack:
        assert await stack.rows(objects) == []
        await stack.begin(web("shop", 1, replicas=1), version=1)
        level = await stack.level("shop")
        assert level["status"] == "settling"
        assert await stack.find_level("lost") is None
        assert await stack.intents("pending") == [("apply", "pods/default/shop-0")]


async def test_two_processors_share_the_partitions_and_decide_once(nats_server: NatsServer, postgres_url: str) -> None:
    async with Processing(nats_server.url, postgres_url) as stack:
        shops = [web(f"shop{n}", n + 1, replicas=2) for n in range(40)]
        pods = [pod(f"shop{n}-0", 100 + n, owner=f"uid-shop{n}") for n in range(40)]
        stack.start("one")
        await stack.start_more("two")
        last = await stack.listed(*shops, *pods, version=200)
        await stack.folded(last)
        assert sorted(await stack.intents()) == sorted(("apply", f"pods/default/shop{n}-1") for n in range(40))
        decided = [p.calls.functions.get("webs/converge", 0) for p in stack.processors.values()]
        assert sum(decided) == 40
        assert all(decided)


async def test_a_processor_that_comes_or_goes_is_told_to_the_others_at_once(
    nats_server: NatsServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look at their leases by the clock too, which takes hours here."""
    monkeypatch.setattr(Leases, "interval", timedelta(hours=1))
    async with Processing(nats_server.url, postgres_url) as stack:
        one = await stack.begin(web("shop", 1, replicas=0), version=2)
        two = stack.start("two")

        async def holders() -> list[str]:
            return sorted(row["owner"] for row in await stack.rows(leases))

        async def are_shared() -> bool:
            return await holders() == ["one-0", "one-0", "two-1", "two-1"] and not one.trouble() + two.trouble()

        await until(are_shared, "both with their shares")
        await stack.stop("two")
        await until(holders, "all partitions with the one that is left", accept=lambda found: found == ["one-0"] * 4)
        monkeypatch.setattr("levelog_processors.processor.monotonic", lambda: math.inf)
        assert one.trouble() == "its leases are not renewed"


async def test_who_holds_all_partitions_does_not_look_whether_others_were_killed(
    nats_server: NatsServer, postgres_url: str
) -> None:
    async def both_look() -> bool:
        return [task.get_name() for task in asyncio.all_tasks()].count("others") == 2

    async with Processing(nats_server.url, postgres_url) as stack:
        last = await stack.listed(web("shop", 1, replicas=0), version=2)
        stack.start("one")
        await stack.folded(last)
        assert "others" not in [task.get_name() for task in asyncio.all_tasks()]
        await stack.start_more("two")
        await until(both_look, "a look of each at the other")


async def test_invariant_10_a_stopped_processor_is_taken_over_without_a_second_decision(
    nats_server: NatsServer, postgres_url: str
) -> None:
    async with Processing(nats_server.url, postgres_url) as stack:
        await stack.begin(*[web(f"shop{n}", n + 1) for n in range(20)], version=50)
        await stack.stop("one")
        stack.start("two")
        last = await stack.tell(*[web(f"shop{n}", 100 + n, replicas=1, labels={"a": "b"}) for n in range(20)])
        await stack.folded(last)
        assert len(await stack.intents()) == 20
        assert stack.processors["two"].calls.functions == {}


async def test_what_is_watched_no_more_leaves_the_tables_and_nothing_is_written_for_it(stack: Processing) -> None:
    await stack.begin(web("shop", 1), pod("shop-0", 2, owner="uid-shop"), version=2)
    decided = await stack.intents()
    # The pods' list is complete before that of the Webs is begun: the Web seems to have lost its pods.
    last = 0
    for resource, left in ((PODS, ["webs.example.com/default/shop"]), (WEBS, [])):
        for mark in lists_done(resource, 9):
            last = await stack.mark(msgspec.structs.replace(mark, namespaces=("other",)))
        await stack.until_folded_only(last)
        assert [row["object"] for row in await stack.rows(objects)] == left
    await stack.folded(last)
    assert await stack.intents() == decided
    # It comes back as it was.
    begun, ended = lists_done(PODS, 12)
    await stack.mark(begun)
    await stack.tell(pod("shop-0", 2, owner="uid-shop"))
    await stack.folded(await stack.mark(ended))
    assert [row["object"] for row in await stack.rows(objects)] == ["pods/default/shop-0"]


async def test_commits_that_the_database_lost_are_folded_again_from_the_log(stack: Processing) -> None:
    """A server that crashed, and another task met the error: the processor sees a fresh connection and no error."""
    await stack.begin(web("shop", 1, replicas=1), pod("shop-0", 2, owner="uid-shop"), version=2)
    kept = await keep(stack.database, stack.scope)
    last = await stack.tell(deleted(pod("shop-0", 2, owner="uid-shop"), 3))
    await stack.folded(last)
    assert (await stack.level("shop"))["status"] == "settling"
    await lose(stack.database, stack.scope, kept)
    last = await stack.tell(web("other", 4, replicas=0))
    await stack.folded(last)
    assert (await stack.level("shop"))["status"] == "settling"
    assert await stack.intents("pending") == [("apply", "pods/default/shop-0")]


async def test_tables_are_analyzed_while_they_are_filled(nats_server: NatsServer, postgres_url: str) -> None:
    analyzed = text("SELECT relname FROM pg_stat_user_tables WHERE analyze_count > 0")
    async with Processing(nats_server.url, postgres_url) as stack:
        webs = [web(f"shop-{n}", n + 1, replicas=0) for n in range(2 * FIRST_STATISTICS)]
        await stack.begin(*webs, version=2 * FIRST_STATISTICS)

        async def are_analyzed() -> bool:
            async with stack.database.reading() as connection:
                return {"levels", "objects"}.issubset((await connection.execute(analyzed)).scalars())

        await until(are_analyzed, "statistics of what was folded and of what was decided")
