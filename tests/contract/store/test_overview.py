"""What is shown of an application: levels, parents without one, and why."""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import insert, update

from levelog_cli.wiring.levelwatch import changes
from levelog_store.connect.database import Database
from levelog_store.dialects import rows_of
from levelog_store.look.contact import listed_resources
from levelog_store.look.levelpages import ALL, LevelQuery, read_level_lines
from levelog_store.look.overview import (
    LevelLine,
    Workload,
    count_work,
)
from levelog_store.look.queues import Queue
from levelog_store.owners.handlers import Handler
from levelog_store.owners.scopes import find_scopes
from levelog_store.rows import LevelRow, Scope
from levelog_store.tables import checkpoints, levels, syncs, wakeups
from rigs import leasing
from rigs.intents import decide, intent
from rigs.tablerows import table_row
from rigs.webs import NOON


async def scope_of(database: Database, application: str = "shops", **given: Any) -> Scope:
    return await leasing.scope_of(database, application=application, partitions=2, **given)


def level(scope: Scope, view: str, parent: str, status: Any = "in_sync", **columns: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"partition": 0, "parent_uid": "u", "round": 2, "cause": 1, "evaluated_at": NOON, **columns}
    [row] = rows_of(scope, [LevelRow(view=view, parent=parent, status=status, **told)])
    return row


async def add(database: Database, table: Any, *rows: dict[str, Any]) -> None:
    async with database.transaction() as connection:
        await connection.execute(insert(table), list(rows))


def wake(scope: Scope, view: str, parent: str) -> dict[str, Any]:
    return table_row(wakeups, scope, view=view, parent=parent, cause=1, generation=1, due_at=None)


def sync(scope: Scope, resource: str, partition: int, finished: int) -> dict[str, Any]:
    given = {"resource": resource, "partition": partition, "finished_sequence": finished}
    return table_row(syncs, scope, unfinished="{}", started_sequence=1, version=1, heard_at=None, **given)


async def lines(database: Database, scope: Scope, **selected: Any) -> list[LevelLine]:
    async with database.reading() as connection:
        return await read_level_lines(connection, scope, LevelQuery(**selected))


def names(found: list[LevelLine]) -> list[tuple[str, str]]:
    return [(line.view, line.parent.rpartition("/")[2]) for line in found]


async def test_levels_are_selected_by_view_status_and_name(database: Database) -> None:
    scope, other = await scope_of(database), await scope_of(database, "others")
    await add(
        database,
        levels,
        level(scope, "webs/pods", "webs.example.com/a/shop", "failed", reason="no", drift=b'{"missing":["x"]}'),
        level(scope, "webs/pods", "webs.example.com/b/shop"),
        level(scope, "webs/pods", "webs.example.com/b/a_shop"),
        level(scope, "webs/pods", "webs.example.com/b/a-shop"),
        level(scope, "webs/status", "webs.example.com/a/shop"),
        level(other, "webs/pods", "webs.example.com/a/shop"),
    )
    assert await lines(database, scope, statuses=["failed"]) == [
        LevelLine(
            view="webs/pods",
            parent="webs.example.com/a/shop",
            status="failed",
            reason="no",
            drift=b'{"missing":["x"]}',
            round=2,
            evaluated_at=NOON,
        )
    ]
    assert len(await lines(database, scope)) == 5
    assert names(await lines(database, scope, view="status")) == [("webs/status", "shop")]
    assert len(await lines(database, scope, view="webs/pods")) == 4
    assert await lines(database, scope, view="ods") == []
    assert len(await lines(database, scope, name="shop")) == 3
    assert len(await lines(database, scope, name="a/shop")) == 2
    assert len(await lines(database, scope, name="webs.example.com/b/shop")) == 1
    assert names(await lines(database, scope, name="a_shop")) == [("webs/pods", "a_shop")]
    assert await lines(database, scope, name="hop") == []


async def reason_of(database: Database, scope: Scope, **selected: Any) -> str:
    (line,) = await lines(database, scope, **selected)
    assert (line.status, line.evaluated_at) == ("blocked", None)
    return line.reason


CODE = (
    Handler(kind="index", name="webs/images", fingerprint="1", resource="pods"),
    Handler(kind="view", name="webs/pods", fingerprint="1", resource="webs.example.com", reads=("webs/images",)),
    Handler(kind="view", name="webs/status", fingerprint="1", resource="webs.example.com"),
)


async def test_a_parent_that_was_never_evaluated_is_blocked_and_says_why(database: Database) -> None:
    scope = await scope_of(database, code=CODE)
    parent = "webs.example.com/a/shop"
    await add(database, wakeups, wake(scope, "webs/pods", parent), wake(scope, "webs/status", parent))
    await add(database, levels, level(scope, "webs/status", parent))
    (line,) = await lines(database, scope, view="pods")
    assert (line.status, line.round, line.evaluated_at) == ("blocked", 0, None)
    assert line.reason == "pods and webs.example.com were not listed yet"
    await add(database, syncs, *(sync(scope, "webs.example.com", partition, 7) for partition in (0, 1)))
    assert await reason_of(database, scope, view="pods") == "pods was not listed yet"
    await add(database, syncs, sync(scope, "pods", 0, 7), sync(scope, "pods", 1, 0), sync(scope, "secrets", 0, 0))
    assert await reason_of(database, scope, view="pods", statuses=["blocked"]) == "pods was not listed to the end yet"
    assert await lines(database, scope, view="pods", statuses=["in_sync"]) == []
    (line,) = await lines(database, scope, view="status")  # its wake is pending, but it has a level
    assert line.status == "in_sync"
    async with database.reading() as connection:
        assert await listed_resources(connection, scope) == {
            "pods": False,
            "secrets": False,
            "webs.example.com": True,
        }
    async with database.transaction() as connection:
        await connection.execute(update(syncs).values(finished_sequence=9))
    said = "not evaluated yet: other levels of its object come first, or no processor runs"
    assert await reason_of(database, scope, view="pods") == said


async def test_a_call_that_was_made_after_somebody_asked_for_it_is_no_level(database: Database) -> None:
    """The processor has not taken the wakeup away yet."""
    records = Handler(kind="event", name="webs/record", fingerprint="1", resource="webs.example.com")
    scope = await scope_of(database, code=[records])
    await add(database, wakeups, wake(scope, "webs/record", "webs.example.com/a/shop"))
    assert await lines(database, scope) == []


async def test_a_level_of_changed_code_says_so_until_a_processor_has_decided_again(database: Database) -> None:
    scope = await scope_of(database, code=CODE)
    parent = "webs.example.com/a/shop"
    await add(database, levels, level(scope, "webs/pods", parent), level(scope, "webs/status", parent))
    await add(
        database, syncs, *(sync(scope, name, part, 7) for name in ("pods", "webs.example.com") for part in (0, 1))
    )
    async with database.transaction() as connection:
        await connection.execute(update(checkpoints).values(sequence=7))
    images, *views = CODE
    await scope_of(database, code=(replace(images, fingerprint="2"), *views), fingerprint="g")
    assert await reason_of(database, scope, view="pods") == "not evaluated since its code changed"
    assert names(await lines(database, scope, statuses=["in_sync"])) == [("webs/status", "shop")]


async def test_every_application_is_found(database: Database) -> None:
    opened = [
        await scope_of(database, "b", cluster="c1"),
        await scope_of(database, "a", cluster="c2"),
        await scope_of(database, "a", cluster="c1"),
    ]
    async with database.reading() as connection:
        assert await find_scopes(connection) == [opened[2], opened[1], opened[0]]


async def test_the_server_tells_its_version_and_whether_it_is_durable(database: Database) -> None:
    facts = await database.server_facts()
    assert facts.version.startswith("PostgreSQL " if database.is_shared else "SQLite ")
    assert facts.is_durable is not database.is_shared  # the tests' PostgreSQL runs without fsync


async def test_a_level_shows_its_writes_with_attempts_and_errors(database: Database) -> None:
    scope = await scope_of(database)
    shop, mall, calm = (f"webs.example.com/a/{name}" for name in ("shop", "mall", "calm"))
    await add(
        database,
        levels,
        level(scope, "webs/pods", shop, "settling", reason="waits for pods/a/b"),
        level(scope, "webs/pods", mall, "failed", reason="given up"),
        level(scope, "webs/pods", calm),
    )
    common: dict[str, Any] = {"scope": scope.number, "verb": "apply", "attempts": 3, "error": "apply pods/a/b: 503: no"}
    await decide(
        database,
        intent("pods/a/b", parent=shop, due_at=NOON, **common),
        intent("pods/a/c", parent=shop, state="written", scope=scope.number),
        intent("pods/a/b", parent=mall, round=1, state="failed", **common),
        intent("pods/a/b", parent=mall, round=2, state="failed", **common),
        intent("pods/a/b", parent=calm, state="settled", **common),
    )
    shown = {line.parent: line for line in await lines(database, scope)}
    assert shown[shop].reason == (
        f"apply pods/a/b: tried 3 times since {shown[shop].writes[0].since:%Y-%m-%d %H:%M:%S} UTC, "
        f"the next time at {NOON:%Y-%m-%d %H:%M:%S} UTC: 503: no"
    )
    assert [(each.target, each.state, each.next_at) for each in shown[shop].writes] == [
        ("pods/a/b", "pending", NOON),
        ("pods/a/c", "written", None),
    ]
    assert [(each.attempts, each.error) for each in shown[mall].writes] == [(3, common["error"])]
    assert (shown[mall].reason, shown[calm].writes) == ("given up", [])


async def test_a_call_that_waits_while_others_of_its_effect_run_tells_how_many(database: Database) -> None:
    scope, other = await scope_of(database), await scope_of(database, "others")
    soon, past = datetime.now(UTC) + timedelta(hours=1), NOON
    held: dict[str, Any] = {"state": "claimed", "due_at": soon, "expires_at": soon}
    rows = [
        call("a", owner="one", **held),
        call("b", owner="two", **held),
        call("c"),
        call("d", attempts=1, due_at=past, error="refused"),
        call("e", attempts=1, due_at=soon, error="refused"),
        call("f", kind="mail"),
        call("g", view="cars/parked"),
        call("h", verb="apply"),
        call("j", owner="killed", state="claimed", due_at=past, expires_at=past),
        {**call("i", owner="one", **held), "scope": other.number},
    ]
    for row in rows[:-1]:
        row["scope"] = scope.number
    await decide(database, *rows)
    found = {line.parent.rpartition("/")[2]: line for line in await lines(database, scope)}
    waits = "2 such calls are under way in 2 actuators, 3 wait"
    assert found["c"].told_reason == f"call effect page for a/c waits: {waits}"
    assert found["d"].told_reason.endswith(f": refused; {waits}")
    queues = {name: [write.queue for write in line.writes] for name, line in found.items()}
    queue = Queue(effect="shops/page", under_way=2, actuators=2, waiting=3)
    assert queues == {**{name: [None] for name in "abefgh"}, "c": [queue], "d": [queue], "j": [queue]}
    one = Queue(effect="shops/page", under_way=1, actuators=1, waiting=1)
    assert one.text == "1 such call is under way, 1 waits"


def call(
    name: str, *, view: str = "shops/paged", kind: str = "page", verb: str = "call", **columns: Any
) -> dict[str, Any]:
    """A row of a call for an object of its own."""
    parent = f"webs.example.com/a/{name}"
    return intent(f"{kind}/a/{name}", verb=verb, view=view, parent=parent, kind=kind, **columns)


async def test_work_is_counted_by_view_and_status_in_the_partitions_that_are_named(database: Database) -> None:
    scope, other = await scope_of(database), await scope_of(database, "others")
    later = datetime(2999, 1, 1, tzinfo=UTC)
    async with database.transaction() as connection:
        rows = [
            level(scope, "webs/pods", "webs/a/one"),
            level(scope, "webs/pods", "webs/a/two"),
            level(scope, "webs/pods", "webs/a/three", "failed"),
            level(scope, "webs/pods", "webs/a/four", partition=1),
            level(other, "webs/pods", "webs/a/five"),
        ]
        await connection.execute(insert(levels), rows)
        due = [(scope, "one", 0, None), (scope, "two", 0, NOON), (scope, "three", 0, later), (scope, "four", 1, None)]
        for of, parent, partition, due_at in [*due, (other, "five", 0, None)]:
            values = {"view": "webs/pods", "parent": parent, "partition": partition, "cause": 1, "generation": 1}
            await connection.execute(insert(wakeups), [{"scope": of.number, "due_at": due_at, **values}])
    async with database.reading() as connection:
        found = await count_work(connection, scope, [0])
        both = await count_work(connection, scope, [0, 1])
    assert sorted(found, key=lambda each: each.status) == [
        Workload("webs/pods", "", 2),
        Workload("webs/pods", "failed", 1),
        Workload("webs/pods", "in_sync", 2),
    ]
    assert {each.status: each.count for each in both} == {"": 3, "failed": 1, "in_sync": 3}


async def test_who_watches_levels_is_shown_a_call_that_waits_once_however_the_queue_changes(database: Database) -> None:
    scope = await scope_of(database)
    soon = datetime.now(UTC) + timedelta(hours=1)
    held: dict[str, Any] = {"state": "claimed", "owner": "one", "due_at": soon, "expires_at": soon}
    rows = [call("a", **held), call("b"), call("c")]
    for row in rows:
        row["scope"] = scope.number

    async def evaluate(*intents: dict[str, Any]) -> None:
        await decide(database, *intents)
        async with database.transaction() as connection:
            await connection.execute(update(levels).values(evaluated_at=NOON))

    await evaluate(*rows[:2])
    async with aclosing(changes(database, [scope], ALL)) as changing:
        first = await anext(changing)
        await evaluate(rows[2])
        second = await anext(changing)
    shown = [
        [(line.parent[-1], line.told_reason.rpartition(", ")[2]) for _, line in each.lines] for each in (first, second)
    ]
    assert shown == [[("a", ""), ("b", "1 waits")], [("c", "2 wait")]]
