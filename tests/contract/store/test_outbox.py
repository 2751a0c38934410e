import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import Unavailable
from levelog_base.wire.canonical import canonical
from levelog_base.wire.records import Outcome, ReceiptNoted
from levelog_store.actuate import claims, heartbeats, outcomes
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.daemonstates import keep_progress
from levelog_store.actuate.outcomes import Postponement, UnseenWrite
from levelog_store.connect.database import Database
from levelog_store.dialects import now, upsert
from levelog_store.fold import levelwrites
from levelog_store.rows import LevelRow
from levelog_store.tables import intents, levels, wakeups
from rigs import webs
from rigs.intents import NOON, claim_decided, claimed_intent, decide, intent, intents_by_key, states
from rigs.leasing import SCOPE, scope_numbered
from rigs.locks import until_one_waits
from rigs.run.examples import examples
from rigs.statements import counting

A, B = "pods/default/a", "pods/default/b"
LEASE = timedelta(seconds=30)
PAST = timedelta(seconds=-1)
_scopes = count(10)


async def claim(
    database: Database, owner: str = "one", *, limit: int = 100, lease: timedelta = LEASE
) -> list[ClaimedIntent]:
    async with database.transaction() as connection:
        return await claims.claim(connection, SCOPE, owner, limit=limit, lease=lease)


def keys_of(claimed: Sequence[ClaimedIntent]) -> list[str]:
    return [each.key for each in claimed]


def receipt(key: str, outcome: Outcome = "written", error: str = "") -> ReceiptNoted:
    return webs.receipt({**intent(A), "key": key}, outcome=outcome, version=7, error=error)


async def store(database: Database, *receipts: ReceiptNoted, owner: str = "one") -> set[str]:
    """Under the claims that there are now."""
    rows = await intents_by_key(database)
    under = [(each, rows[each.key]["claim"]) for each in receipts]
    async with database.transaction(durable=False) as connection:
        return {*await outcomes.store_receipts(connection, SCOPE, owner, under)}


async def postpone(
    database: Database, key: str, delay: timedelta, *, is_doubtful: bool = False, owner: str = "one"
) -> None:
    under = (await intents_by_key(database))[key]["claim"]
    later = Postponement(key=key, claim=under, delay=delay, error="503", attempts=1, is_doubtful=is_doubtful)
    async with database.transaction() as connection:
        await outcomes.postpone(connection, SCOPE, owner, [later])


async def test_a_new_intent_is_claimed_once_with_all_that_a_request_needs(database: Database) -> None:
    row = intent(A, verb="apply", body={"a": "ü"}, options={"force": True}, target_uid="u", target_version=5)
    await decide(database, row)
    (claimed,) = await claim(database)
    assert claimed == claimed_intent(row, claim=claimed.claim)
    held = (await intents_by_key(database))[row["key"]]
    assert (held["state"], held["owner"], held["attempts"], held["claim"]) == ("claimed", "one", 1, claimed.claim)
    assert held["due_at"] == held["expires_at"]
    assert await claim(database, "two") == []


async def test_only_open_intents_of_the_scope_are_claimed(database: Database) -> None:
    closed = ("written", "settled", "satisfied", "failed", "superseded")
    await decide(database, *(intent(f"pods/default/{state}", state=state) for state in closed), intent(A, scope=2))
    assert await claim(database) == []


async def test_a_claim_that_ended_is_taken_over_as_doubtful(database: Database) -> None:
    (key,) = await decide(database, intent(A))
    await claim(database, lease=PAST)
    (again,) = await claim(database, "two")
    assert (again.key, again.is_doubtful, again.attempts) == (key, True, 2)


async def test_what_came_of_a_claim_counts_no_more_when_its_owner_has_another_one(database: Database) -> None:
    (key,) = await decide(database, intent(A))
    (lost,) = await claim(database, lease=PAST)
    await claim(database, "two", lease=PAST)
    (held,) = await claim(database)
    before = (await intents_by_key(database))[key]
    assert lost.claim != held.claim
    async with database.transaction() as connection:
        assert not await keep_progress(connection, SCOPE, "one", lost, b"1")
        assert await outcomes.store_receipts(connection, SCOPE, "one", [(receipt(key), lost.claim)]) == {}
        await outcomes.postpone(connection, SCOPE, "one", [put_off(key, lost.claim, is_doubtful=False)])
    assert (await intents_by_key(database))[key] == before
    async with database.transaction() as connection:
        assert await keep_progress(connection, SCOPE, "one", held, b"2")
        assert await outcomes.store_receipts(connection, SCOPE, "one", [(receipt(key), held.claim)]) == {key: False}
    after = (await intents_by_key(database))[key]
    assert (after["progress"], after["state"]) == (b"2", "written")


async def test_what_is_put_off_comes_back_when_it_is_due_and_not_before(database: Database) -> None:
    soon, late = await decide(database, intent(A), intent(B))
    await claim(database)
    await postpone(database, soon, PAST)
    await postpone(database, late, timedelta(hours=1))
    assert await states(database, [soon, late]) == ["pending", "pending"]
    (again,) = await claim(database)
    assert (again.key, again.is_doubtful, again.attempts) == (soon, False, 2)


async def test_of_what_waited_for_its_time_the_longest_due_goes_first(database: Database) -> None:
    hours = [intent(f"pods/default/{late}", due_at=NOON - timedelta(hours=late)) for late in (1, 3, 2)]
    await decide(database, *hours, intent(A))
    claimed = [*await claim(database, limit=1), *await claim(database, limit=1), *await claim(database)]
    assert [each.target.rpartition("/")[2] for each in claimed] == ["3", "2", "1", "a"]


async def test_what_may_have_taken_effect_stays_claimed_while_it_waits(database: Database) -> None:
    (key,) = await decide(database, intent(A))
    await claim(database)
    await postpone(database, key, PAST, is_doubtful=True)
    held = (await intents_by_key(database))[key]
    assert (held["state"], held["owner"], held["error"]) == ("claimed", "", "503")
    assert [each.is_doubtful for each in await claim(database, "two")] == [True]


async def test_levels_that_wait_are_looked_at_when_a_call_of_theirs_can_be_withdrawn(database: Database) -> None:
    rows = [intent(f"pods/default/{name}", parent=f"webs.example.com/default/{name}") for name in "abc"]
    keys = await decide(database, *rows)
    later = NOON + timedelta(days=36_500)
    named = [{"scope": 1, **{name: row[name] for name in ("view", "parent", "partition")}} for row in rows]
    async with database.transaction() as connection:
        told = {"cause": 1, "causes": "", "generation": 1, "due_at": later}
        await connection.execute(insert(wakeups), [{**each, **told} for each in named])
        await connection.execute(update(intents).where(intents.c.key == keys[1]).values(state="claimed"))
        waiting = await levelwrites.read_waiting(connection, SCOPE, keys[:2])
        for level in waiting:
            await levelwrites.hasten(connection, SCOPE, level)
        assert waiting == [(rows[0]["view"], rows[0]["parent"])]
        due = (await connection.execute(select(wakeups.c.parent).where(wakeups.c.due_at < later))).scalars().all()
        assert due == [rows[0]["parent"]]
        assert await levelwrites.read_waiting(connection, SCOPE, keys[:2]) == []


async def test_a_claim_holds_until_it_ends_is_taken_or_has_its_receipt(database: Database) -> None:
    async def held(owner: str) -> set[str]:
        async with database.reading() as connection:
            return await claims.still_claimed(connection, SCOPE, owner, [lasting, ended, done, "unknown"])

    lasting, ended, done = await decide(database, intent(A), intent(B), intent("pods/default/c"))
    await claim(database)
    assert await held("one") == {lasting, ended, done}
    await store(database, receipt(done))
    async with database.transaction() as connection:
        await connection.execute(update(intents).where(intents.c.key == ended).values(expires_at=NOON))
    assert await held("one") == {lasting}
    assert await held("two") == set()


async def test_receipts_are_stored_word_for_word(database: Database) -> None:
    written, failed = await decide(database, intent(A), intent(B))
    await claim(database)
    refused = receipt(failed, "failed", error="no 'way' to \"ü\" 1.50")
    assert await store(database, receipt(written), refused) == {written, failed}
    held = await intents_by_key(database)
    assert [held[key]["state"] for key in (written, failed)] == ["written", "failed"]
    assert (held[written]["result_uid"], held[written]["result_version"]) == ("uid-a", 7)
    assert held[failed]["error"] == refused.error
    async with database.reading() as connection:
        found = await outcomes.unrelayed(connection, SCOPE, 10)
    assert {row.key: row.receipt for row in found} == {written: canonical(receipt(written)), failed: canonical(refused)}


async def test_receipts_wait_to_be_relayed_until_they_are_noted(database: Database) -> None:
    keys = await decide(database, intent(A), intent(B))
    await claim(database)
    await store(database, *(receipt(key) for key in keys))
    async with database.transaction() as connection:
        await outcomes.mark_relayed(connection, SCOPE, keys[:1])
    async with database.reading() as connection:
        assert [row.key for row in await outcomes.unrelayed(connection, SCOPE, 10)] == keys[1:]
        assert await outcomes.unrelayed(connection, scope_numbered(2), 10) == []


async def test_the_time_of_the_next_intent_that_waits_is_known(database: Database) -> None:
    async def wait() -> timedelta | None:
        async with database.reading() as connection:
            return (await claims.next_due(connection, SCOPE))[0]

    assert await wait() is None
    (key,) = await decide(database, intent(A))
    assert await wait() is None
    await claim(database)
    await postpone(database, key, timedelta(seconds=100))
    waiting = await wait()
    assert waiting is not None
    assert timedelta(seconds=60) < waiting <= timedelta(seconds=100)


async def test_all_claims_end_at_once_when_their_process_is_known_to_be_gone(database: Database) -> None:
    claimed, waiting = await decide(database, intent(A), intent(B))
    await claim(database)
    await postpone(database, waiting, timedelta(hours=1), is_doubtful=True)
    async with database.transaction() as connection:
        assert await claims.end_claims(connection, SCOPE) == 1
    assert [(each.key, each.is_doubtful) for each in await claim(database, "two")] == [(claimed, True)]


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_may_be_on_its_way_goes_before_an_earlier_decision_that_came_late(
    database: Database, is_late: bool
) -> None:
    sent = intent(A, decided_at=NOON + timedelta(seconds=1))
    await decide(database, sent)
    await claim(database, lease=PAST if is_late else LEASE)
    await decide(database, intent(A, decided_at=NOON))
    assert keys_of(await claim(database, "two")) == ([sent["key"]] if is_late else [])


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000))
async def test_any_order_of_claims_and_results_keeps_the_order_of_each_target(database: Database, seed: int) -> None:
    """Random claims, receipts, delays and lost claims: one open claim a target, and receipts in order."""
    chance = random.Random(seed)
    scope = next(_scopes)  # Hypothesis tries a seed again, on the same database
    rows = [intent(f"pods/default/{chance.randrange(3)}", scope=scope) for _ in range(8)]
    target = {row["key"]: row["target"] for row in rows}
    await decide(database, *chance.sample(rows, len(rows)))
    finished: list[str] = []
    open_claims: dict[str, str] = {}  # by target
    under: dict[str, int] = {}
    while len(finished) < len(rows):
        async with database.transaction() as connection:
            lease = chance.choice((LEASE, PAST))
            for each in await claims.claim(
                connection, scope_numbered(scope), "one", limit=chance.randint(1, 4), lease=lease
            ):
                assert open_claims.get(each.target, each.key) == each.key
                open_claims[each.target], under[each.key] = each.key, each.claim
            for key in [key for key in open_claims.values() if chance.random() < 0.6]:
                match chance.randrange(3):
                    case 0:
                        row = receipt(key), under[key]
                        if await outcomes.store_receipts(connection, scope_numbered(scope), "one", [row]):
                            finished.append(key)
                            del open_claims[target[key]]
                    case 1:
                        later = put_off(key, under[key], is_doubtful=True)
                        await outcomes.postpone(connection, scope_numbered(scope), "one", [later])
                    case _:
                        later = put_off(key, under[key], is_doubtful=False)
                        await outcomes.postpone(connection, scope_numbered(scope), "one", [later])
                        if key in await _pending(connection, scope):
                            del open_claims[target[key]]
            ends = update(intents).where(intents.c.scope == scope, intents.c.state == "claimed")
            await connection.execute(ends.values(due_at=NOON, expires_at=NOON))
    for name in set(target.values()):
        assert [key for key in finished if target[key] == name] == [r["key"] for r in rows if r["target"] == name]


def put_off(key: str, claim: int, *, is_doubtful: bool) -> Postponement:
    return Postponement(key=key, claim=claim, delay=PAST, error="", attempts=1, is_doubtful=is_doubtful)


async def _pending(connection: AsyncConnection, scope: int) -> set[str]:
    is_pending = (intents.c.scope == scope) & (intents.c.state == "pending")
    return set((await connection.execute(select(intents.c.key).where(is_pending))).scalars())


async def test_claimants_at_once_never_get_the_same_intent_nor_one_target_twice(database: Database) -> None:
    rows = [intent(f"pods/default/{number % 40}") for number in range(200)]
    await decide(database, *rows)
    order = [row["key"] for row in rows]
    busy: Counter[str] = Counter()
    done: list[str] = []

    async def work(owner: str) -> None:
        while len(done) < len(rows):
            claimed = await claim(database, owner, limit=7)
            for each in claimed:
                busy[each.target] += 1
            assert all(count <= 1 for count in busy.values()), busy
            await asyncio.sleep(0)
            for each in claimed:  # before the commit: from then on the next one of the target may be claimed
                busy[each.target] -= 1
                done.append(each.key)
            if claimed:
                stored = await store(database, *(receipt(each.key) for each in claimed), owner=owner)
                assert stored == set(keys_of(claimed))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(work(f"owner-{number}"))
    assert sorted(done) == sorted(order)
    for target in {row["target"] for row in rows}:
        mine = {row["key"] for row in rows if row["target"] == target}
        assert [key for key in done if key in mine] == [key for key in order if key in mine]


async def test_rows_that_another_claimant_is_taking_are_passed_over(shared: Database) -> None:
    first, second = await decide(shared, intent(A), intent(B))
    async with shared.transaction() as connection:
        (mine,) = await claims.claim(connection, SCOPE, "one", limit=1, lease=LEASE)
        async with asyncio.timeout(60):
            theirs = await claim(shared, "two")
    assert {mine.key, *keys_of(theirs)} == {first, second}


async def decide_and_claim(database: Database, *rows: dict[str, Any], owner: str = "one") -> set[str]:
    """Decide intents and claim them in the same transaction."""
    async with database.transaction() as connection:
        return await claim_decided(connection, rows, owner, LEASE)


async def test_what_is_decided_can_be_claimed_in_the_same_transaction(database: Database) -> None:
    first, second, other = intent(A), intent(A), intent(B)
    assert await decide_and_claim(database, first, second, other) == {first["key"], other["key"]}
    rows = await intents_by_key(database)
    assert [(rows[each["key"]]["state"], rows[each["key"]]["attempts"]) for each in (first, second)] == [
        ("claimed", 1),
        ("pending", 0),
    ]
    assert await claim(database, "two") == []
    await store(database, receipt(first["key"]))
    assert keys_of(await claim(database, "two")) == [second["key"]]


async def test_what_was_given_back_is_not_claimed_before_its_time(database: Database) -> None:
    row = intent(A)
    await decide(database, row)
    await claim(database)
    await postpone(database, row["key"], timedelta(minutes=1))
    assert await decide_and_claim(database, row) == set()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_of_two_transactions_that_claim_for_one_target_at_once_one_goes_first(
    shared: Database, is_committed: bool
) -> None:
    first, second = intent(A), intent(A)
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(shared.transaction())
        assert await claim_decided(connection, [first], "one", LEASE)
        later = asyncio.create_task(decide_and_claim(shared, second, owner="two"))
        await until_one_waits(shared, "the second one to wait for the first")
        if not is_committed:
            await connection.rollback()
    assert await later == (set() if is_committed else {second["key"]})
    assert await states(shared, [second["key"]]) == ["pending" if is_committed else "claimed"]


async def test_transactions_that_claim_for_the_same_targets_wait_for_each_other_in_one_order(shared: Database) -> None:
    a, b, c = A, B, "pods/default/c"
    async with shared.transaction() as connection:
        assert await claim_decided(connection, [intent(c)], "first", LEASE)
        later = [
            asyncio.create_task(decide_and_claim(shared, *map(intent, targets), owner=targets[0]))
            for targets in ((a, c, b), (b, c, a))
        ]
        await until_one_waits(shared, "both to wait for the first or for each other", many=2)
    assert sorted(map(len, await asyncio.gather(*later))) == [0, 2]


async def test_who_claims_for_a_target_while_another_intent_is_claimed_as_it_is_decided_tries_again(
    shared: Database,
) -> None:
    async with shared.transaction() as connection:
        assert await claim_decided(connection, [intent(A)], "one", LEASE)
        await decide(shared, intent(A))
        later = asyncio.create_task(claim(shared, "two"))
        await until_one_waits(shared, "the second one to wait for the first")
    with pytest.raises(Unavailable, match="another process is claiming a write to the same target"):
        await later
    assert await claim(shared, "two") == []


async def test_a_look_is_for_what_is_written_and_folded_and_watched_and_has_a_level(database: Database) -> None:
    told: dict[str, Any] = {"state": "written", "is_folded": True, "result_version": 7, "due_at": NOON}
    wanted = intent(A, **told)
    others: list[dict[str, Any]] = [
        {"state": "settled"},
        {"is_folded": False},
        {"is_watched": False},
        {"result_version": 0},
        {"due_at": NOON + timedelta(days=36_500)},
        {"parent_uid": "another"},
    ]
    await decide(database, wanted, *(intent(A, **told | other) for other in others))
    async with database.transaction() as connection:
        await connection.execute(delete(levels))
        assert await take_unseen(connection) == []
        await add_level(connection, wanted)
        (write,) = await take_unseen(connection)
        assert (write.key, write.target, write.result_version, write.observed_version) == (wanted["key"], A, 7, None)
        assert await take_unseen(connection) == []  # not again so soon


async def test_a_target_is_looked_at_a_while_after_the_receipt_and_then_when_it_is_twice_as_old(
    database: Database,
) -> None:
    row = intent(A)
    await decide(database, row)
    await claim(database)
    await store(database, receipt(row["key"]))
    async with database.transaction() as connection:
        await add_level(connection, row)
        await connection.execute(update(intents).values(is_folded=True))
        assert await take_unseen(connection) == []
        await connection.execute(update(intents).values(due_at=NOON))
        (write,) = await take_unseen(connection)
        assert write.age > timedelta(days=1)
        assert timedelta(minutes=4) < await due_in(connection) + LEASE <= timedelta(minutes=5)


async def test_all_that_are_looked_at_are_put_off_by_one_statement(database: Database) -> None:
    rows = [intent(each, state="written", is_folded=True, result_version=7, due_at=NOON) for each in (A, B)]
    await decide(database, *rows)
    async with database.transaction() as connection:
        for row in rows:
            await add_level(connection, row)
    with counting() as counted:
        async with database.transaction() as connection:
            assert len(await take_unseen(connection)) == 2
    assert counted.statements == 2


async def take_unseen(connection: AsyncConnection) -> list[UnseenWrite]:
    return await outcomes.take_unseen(connection, SCOPE, limit=10, after=LEASE, most=timedelta(minutes=5))


async def due_in(connection: AsyncConnection) -> timedelta:
    moment = (await connection.execute(select(now(connection.dialect)))).scalar_one()
    due_at: datetime = (await connection.execute(select(intents.c.due_at))).scalar_one()
    return due_at - moment


async def add_level(connection: AsyncConnection, row: dict[str, Any]) -> None:
    named = {name: row[name] for name in ("view", "parent", "parent_uid", "partition")}
    level = LevelRow(**named, status="settling")
    await upsert(connection, levels, [{"scope": 1, **asdict(level)}])


async def test_a_claim_passes_by_the_api_versions_that_it_is_told_to_leave(database: Database) -> None:
    rows = [intent(f"{resource}/default/a") for resource in ("pods", "webs.example.com", "jobs.batch")]
    await decide(database, *rows)
    found = [await taken(database, without=left) for left in (("v1", "batch/v1"), ("batch/v1",), ())]
    assert [[each.target.partition("/")[0] for each in some] for some in found] == [
        ["webs.example.com"],
        ["pods"],
        ["jobs.batch"],
    ]


async def test_calls_of_effects_are_passed_by_and_claimed_by_themselves(database: Database) -> None:
    def calls(effect: str, count: int, view: str = "webs/told") -> list[dict[str, Any]]:
        columns = {"verb": "call", "api_version": "effects/v1", "kind": effect, "view": view}
        return [intent(f"{effect}.effects/{view[:4]}/{number}", **columns) for number in range(count)]

    slow, small, quick = calls("slow", 5), calls("small", 2), calls("quick", 2)
    others = calls("slow", 2, view="shop/told")
    named_alike = intent("slow.effects/webs/a", kind="slow")  # a write to a resource of the API
    await decide(database, *slow, *small, *quick, *others, named_alike)
    effects = ["webs/slow", "webs/small"]
    async with database.transaction() as connection:
        found = await claims.claim(connection, SCOPE, "a", limit=10, lease=LEASE, without_calls=effects)
        assert sorted(keys_of(found)) == sorted(row["key"] for row in (*quick, *others, named_alike))
        rooms = {"webs/slow": 2, "webs/small": 1}
        found, is_more = await claims.claim_calls(connection, SCOPE, "a", rooms, lease=LEASE)
        assert (keys_of(found), is_more) == ([row["key"] for row in slow[:2]], True)  # the first three of all were slow
        found, is_more = await claims.claim_calls(connection, SCOPE, "a", {"webs/small": 1}, lease=LEASE)
        assert (keys_of(found), is_more) == ([small[0]["key"]], False)
        found, is_more = await claims.claim_calls(connection, SCOPE, "a", {"webs/slow": 4}, lease=LEASE)
        assert (keys_of(found), is_more) == ([row["key"] for row in slow[2:]], False)
        await connection.execute(update(intents).where(intents.c.key == slow[0]["key"]).values(due_at=NOON))
        (again,), _ = await claims.claim_calls(connection, SCOPE, "b", {"webs/slow": 1}, lease=LEASE)
        assert (again.key, again.attempts, again.is_doubtful) == (slow[0]["key"], 2, True)


async def taken(database: Database, *, without: tuple[str, ...]) -> list[ClaimedIntent]:
    async with database.transaction() as connection:
        return await claims.claim(connection, SCOPE, "a", limit=10, lease=timedelta(seconds=30), without=without)


GRACE = timedelta(seconds=10)


async def beat(database: Database, owner: str, duration: timedelta) -> None:
    async with database.transaction() as connection:
        await heartbeats.beat(connection, SCOPE, owner, duration)


async def end_claims_of_gone(database: Database) -> int:
    async with database.transaction() as connection:
        return await heartbeats.end_claims_of_gone(connection, SCOPE, GRACE)


@pytest.mark.parametrize(
    ("left", "ended"),
    [
        (timedelta(seconds=60), []),
        (PAST, ["first"]),
        (-GRACE, ["first", "again", "call", "event"]),
        (None, []),
    ],
    ids=["there", "gone", "gone for long", "never said so"],
)
async def test_claims_end_with_the_heartbeat_of_their_owner(
    database: Database, left: timedelta | None, ended: list[str]
) -> None:
    rows = {
        "first": intent(A),
        "again": intent(B, attempts=1),
        "call": intent("page.effects/default/a", verb="call"),
        "event": intent("pods/default/c", verb="event"),
    }
    await decide(database, *rows.values())
    assert len(await claim(database)) == 4
    await decide(database, other := intent("pods/default/d"))
    await claim(database, "here")
    await beat(database, "here", LEASE)
    if left is not None:
        await beat(database, "one", left)
    for _ in range(2):
        await end_claims_of_gone(database)
    taken = await claim(database, "two")
    assert sorted(keys_of(taken)) == sorted(rows[name]["key"] for name in ended)
    assert all(each.is_doubtful for each in taken)
    assert other["key"] not in keys_of(taken)


async def test_who_says_again_that_it_is_here_keeps_its_next_claims(database: Database) -> None:
    await beat(database, "one", PAST)
    await beat(database, "one", LEASE)
    await decide(database, intent(A))
    await claim(database)
    assert (await end_claims_of_gone(database), await claim(database, "two")) == (0, [])


async def test_who_marks_what_is_in_the_log_waits_for_nobody_and_leaves_what_is_locked(shared: Database) -> None:
    """Most of it a fold is ending, which marks it, in one transaction with a decision that locks others of these."""
    rows = [intent(f"pods/default/{name}", state="settled") for name in "abc"]
    await decide(shared, *rows)
    keys = sorted(row["key"] for row in rows)
    async with shared.transaction() as folding:
        await folding.execute(update(intents).where(intents.c.key == keys[1]).values(is_folded=True))
        async with asyncio.timeout(30), shared.transaction() as connection:
            await outcomes.mark_relayed(connection, SCOPE, keys)
        left = await intents_by_key(shared)
        assert [left[key]["is_relayed"] for key in keys] == [True, False, True]
