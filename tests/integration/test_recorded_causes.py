"""What a decision keeps of how it came about: all records that asked, what was read, what asked in vain."""

import msgspec

from levelog_store.decide.decisions import Decision, PastIntent, PendingWake
from levelog_store.fold.statewrites import write_wakes_of
from levelog_store.look.recall import read_decisions, read_intents, read_intents_on
from rigs.processing import Processing
from rigs.webs import deleted, pod, receipt, web

SHOP = "webs.example.com/default/shop"


async def decisions(stack: Processing) -> list[Decision]:
    async with stack.database.reading() as connection:
        return [each for each in await read_decisions(connection, stack.scope, [SHOP]) if each.view == "webs/pods"]


async def test_a_decision_names_all_records_that_led_to_it(stack: Processing) -> None:
    await stack.listed()
    webs = [await stack.tell(web("shop", 1, replicas=3)), await stack.tell(web("shop", 2, replicas=0))]
    stack.start()
    await stack.folded(webs[-1])
    await stack.stop()
    pods = [
        await stack.tell(pod("shop-0", 3, owner="uid-shop", image="b")),
        await stack.tell(pod("shop-0", 4, owner="uid-shop")),
    ]
    stack.start()
    await stack.folded(pods[-1])
    first, second = await decisions(stack)
    assert (list(first.causes.sequences), list(second.causes.sequences)) == (webs, pods)
    assert (second.status, second.round, second.is_called) == ("settling", 1, True)
    assert [(read.index, read.key, read.version) for read in second.reads if read.version > 0] == [
        ("webs/images", '["example.com","Web","default","uid-shop"]', pods[-1])
    ]


async def test_what_was_read_is_kept_where_it_is_news(stack: Processing) -> None:
    there = pod("shop-0", 2, owner="uid-shop")
    await stack.begin(web("shop", 1, replicas=1), there, version=2)
    changed = await stack.tell(web("shop", 3, replicas=1, image="b"))
    await stack.folded(changed)
    gone = await stack.tell(deleted(there, 4))
    await stack.folded(gone)
    first, second, third = await decisions(stack)
    contents = [[read.content for read in each.reads if read.version > 0] for each in (first, second, third)]
    assert contents == [[b'[["shop-0","a"]]'], [None], [b"[]"]]
    assert (second.causes.sequences, third.causes.sequences) == ((changed,), (gone,))


async def test_records_that_changed_nothing_are_kept_with_the_next_decision(stack: Processing) -> None:
    last = await stack.listed(web("shop", 1, replicas=0), version=1)
    stack.start()
    await stack.folded(last)
    await stack.stop()
    row = await stack.level("shop")
    wake = PendingWake(
        view=row["view"],
        parent=SHOP,
        partition=row["partition"],
        cause=last,
        causes=f"{last - 1},{last}",  # as by two folds whose changes took each other back
        generation=1,
        due_at=None,
    )
    async with stack.database.transaction() as connection:
        await write_wakes_of(connection, stack.scope, {(row["view"], SHOP): wake}, {})
    stack.start()
    await stack.folded(last)
    assert len(await decisions(stack)) == 1
    more = await stack.tell(web("shop", 4, replicas=1))
    await stack.folded(more)
    [_, second] = await decisions(stack)
    assert (second.causes.sequences, second.suppressed.sequences) == ((more,), (last - 1, last))
    row = await stack.level("shop")
    assert row["suppressed"] == ""


async def test_a_status_that_changes_without_a_call_is_a_decision_too(stack: Processing) -> None:
    row = await stack.first_write()
    await stack.folded(await stack.tell(pod("shop-0", 5, owner="uid-shop")))
    told = await stack.tell(receipt(row, version=5))
    await stack.folded(told)
    first, second, third = await decisions(stack)
    assert [(each.status, each.is_called) for each in (first, second, third)] == [
        ("settling", True),
        ("settling", True),
        ("in_sync", False),
    ]
    assert third.causes.sequences == (told,)
    assert (third.desired, third.actual) == (second.desired, second.actual)
    async with stack.database.reading() as connection:
        found = await read_intents(PastIntent, connection, stack.scope, first.intents)
        assert list(found.values()) == await read_intents_on(connection, stack.scope, "pods/default/shop-0")
    [written] = found.values()
    assert (written.state, written.round, written.result_version) == ("settled", 1, 5)
    assert written.receipt
    assert msgspec.json.decode(written.receipt)["outcome"] == "written"


async def test_decisions_on_an_object_that_is_gone_are_kept_when_another_has_its_name(stack: Processing) -> None:
    await stack.begin(web("shop", 1, replicas=0), version=1)
    await stack.folded(await stack.tell(deleted(web("shop", 1, replicas=0), 2)))
    await stack.folded(await stack.tell(web("shop", 3, replicas=0, uid="other")))
    assert [each.parent_uid for each in await decisions(stack)] == ["uid-shop", "other"]
