"""The whole way from a change to a write, each process with the rights that the files in deploy/ give; and that each is
refused what is another's."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest
import pytest_asyncio
import yaml
from sqlalchemy import insert
from sqlalchemy.engine import make_url

from levelog import Manifest
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, Cluster
from levelog_log.transport.access import NatsAccess
from levelog_log.transport.connection import Connection, connect
from levelog_log.transport.wire import Message
from levelog_migrations import upgrade
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from levelog_store.owners.handlers import Handler
from levelog_store.owners.scopes import open_scope
from levelog_store.tables import wakeups
from rigs.levelog import WEBS, WEBS_FILE, Levelog, Running, define_webs
from rigs.nats import NatsServer
from rigs.postgres import PostgresServer, plain
from rigs.privileges import as_role, grant_roles, nats_users
from rigs.waiting import until

UID = Cluster("5f0c1a52-0000-4000-8000-000000000000")
LONG = timedelta(seconds=30)


@dataclass(frozen=True)
class Granted:
    """Servers that give each process the rights that deploy/ says, and the processes of one application."""

    levelog: Levelog
    sandbox: Sandbox
    url: str
    settings: Callable[[str, str], dict[str, str]]
    """By the user of NATS and the role in the database."""
    operator: Path
    running: dict[str, Running] = field(default_factory=dict)

    def start(self, role: str, database: str, *, name: str = "") -> Running:
        self.running[name or role] = self.levelog.start(role, self.operator, env=self.settings(role, database))
        return self.running[name or role]

    def start_all(self) -> None:
        for role, database in (("ingest", "reader"), ("process", "processor"), ("actuate", "actuator")):
            self.start(role, database)

    def check(self) -> None:
        for process in self.running.values():
            process.check()


@asynccontextmanager
async def granted(postgres: PostgresServer, folder: Path, operator: Path, name: str) -> AsyncGenerator[Granted]:
    """Migrated by the owner of the tables; at the end all processes stop in order."""
    async with Sandbox(pods_run=True) as sandbox, postgres.database() as url:
        cluster = Cluster(sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
        await define_webs(sandbox)
        levelog = Levelog(folder, sandbox.kubeconfig(folder / "kubeconfig"))
        await grant_roles(url)
        migrated = await levelog.ends("migrate", operator, env={"LEVELOG_DATABASE_URL": as_role(url, "owner")})
        assert migrated.stdout.endswith(f"the SQL views of application {name} are made\n"), migrated
        await grant_roles(url)
        levelog.env["LEVELOG_DATABASE_URL"] = as_role(url, "reader")
        users, seeds = nats_users(folder, cluster, name)
        async with NatsServer(settings=users) as server:

            def settings(role: str, database: str) -> dict[str, str]:
                return {
                    "LEVELOG_NATS_URL": server.url,
                    "LEVELOG_NATS_NKEY_FILE": str(seeds[role]),
                    "LEVELOG_DATABASE_URL": as_role(url, database),
                    "LEVELOG_CLUSTER": cluster,
                }

            made = Granted(levelog, sandbox, url, settings, operator)
            try:
                yield made
                for process in made.running.values():
                    assert await process.stops() == 0, process.log_tail()
                    assert "SQL views" not in process.log.read_text()
            finally:
                for process in made.running.values():
                    process.kill()


def shop() -> Manifest:
    found: Manifest = yaml.safe_load((WEBS / "shop.yaml").read_text())
    return found


async def test_the_whole_way_works_with_the_rights_that_are_documented(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    async with granted(private_postgres, tmp_path, WEBS_FILE, "webs") as stack:
        levelog, settings = stack.levelog, stack.settings
        stack.start("actuate", "actuator")
        stack.start("process", "processor")
        await stack.start("ingest", "reader").says("leads: does ingest")
        await stack.start("ingest", "reader", name="standby").says("stands by")
        stack.sandbox.user.create(shop())
        await levelog.in_sync()
        examined = await levelog.ends("doctor", WEBS_FILE, env=settings("doctor", "reader"))
        wrong = [line for line in examined.stdout.splitlines() if line.startswith("wrong")]
        assert all("fsync is off" in line for line in wrong), examined  # of the tests' PostgreSQL
        assert f"levelog-{settings('doctor', 'reader')['LEVELOG_CLUSTER']} holds" in examined.stdout
        told = await levelog.ends("history", "webs.example.com/default/shop", env=settings("history", "reader"))
        assert told.status == 0, told
        async with _Role(stack.url, "reader") as reader:

            async def is_shown() -> bool:  # the objects are written up to a second after their levels
                return bool(await reader.fetchval("SELECT status = 'in_sync' FROM webs.pods"))

            await until(is_shown, "the level in its SQL view")


PAGES = """
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from levelog import Call, External, GiveUp, Index, Intent, Level, LiveIndex, Objects, Operator, Resource, call
from levelog.daemons import Daemon

op = Operator("pages")


class Pager(External, plural="pagers"):
    number: str


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


@op.source(Pager, every=timedelta(seconds=1))
def pagers() -> Iterator[Pager]:
    yield Pager(name="main", number=Path("number").read_text())


@op.effect
def page(request: str) -> None:
    if not Path("answers").exists():
        raise GiveUp("nobody answers")


@op.view(reads=[Pager])
def told(web: Web, objects: Objects, page: Index[str, Call[str, None]]) -> Level[str | None]:
    pager = objects.get(Pager, "main")
    calls = page[web.metadata.uid]
    return Level(desired=pager.number if pager else None, actual=calls[0].request if calls else None)


@op.reconcile(told)
def tell(web: Web, level: Level[str | None]) -> Iterator[Intent]:
    if level.desired is not None:
        yield call(page, level.desired)


@op.index
def names(web: Web) -> dict[str, str]:
    return {web.metadata.namespace: web.metadata.name}


@op.daemon
async def follow(web: Web, daemon: Daemon[Web, list[str]], names: LiveIndex[str, str]) -> None:
    await daemon.level(told).until(lambda level: level.status == "in_sync")
    await daemon.save(list(await names.get("default")))
    Path("followed").write_text(str(daemon.state))
    await daemon.stopped()


@op.on.event(backoff=timedelta(hours=1))
async def audit(web: Web) -> None:
    if not Path("answers").exists():
        raise ConnectionError("nobody answers")
"""


async def test_sources_calls_of_each_kind_and_retries_work_with_the_rights_that_are_documented(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    operator = tmp_path / "pages.py"
    operator.write_text(PAGES)
    (tmp_path / "number").write_text("112")
    async with granted(private_postgres, tmp_path, operator, "pages") as stack:
        stack.sandbox.user.create(shop())
        stack.start_all()

        async def come_to(**statuses: tuple[str, int]) -> None:
            async def have_come() -> bool:
                stack.check()
                found = {one["view"]: (one["status"], one["round"]) for one in await stack.levelog.levels()}
                return found == {f"pages/{view}": told for view, told in statuses.items()}

            await until(have_come, f"{statuses}", seconds=90, pause=0.25)

        await come_to(told=("failed", 1), audit=("failed", 0), follow=("settling", 1))
        (tmp_path / "answers").touch()
        retried = await stack.levelog.ends("retry", "--all-failed", env=stack.settings("retry", "retrier"))
        assert (retried.status, retried.stderr) == (0, ""), retried
        await come_to(told=("in_sync", 2), follow=("settling", 1))
        await until((tmp_path / "followed").exists, "a daemon that waited for the level and keeps its state")
        assert (tmp_path / "followed").read_text() == "['shop']"
        (tmp_path / "number").write_text("911")
        await come_to(told=("in_sync", 3), follow=("settling", 1))


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    users, _ = nats_users(tmp_path, UID, "webs")
    async with NatsServer(settings=users) as started:
        yield started


OBJECT = f"levelog.{UID}.3.core.pods.default.shop"
RECEIPT = f"levelog.{UID}.3._receipt.webs"
LOG = f"levelog-{UID}"


LOST: Final = [f"$JS.API.STREAM.DELETE.{LOG}", f"$JS.API.STREAM.PURGE.{LOG}"]
PUBLISHED: Final = {
    "ingest": [
        *(RECEIPT, f"levelog-notify.{UID}.webs.wake"),
        *(f"$JS.API.DIRECT.GET.{LOG}", f"$JS.API.CONSUMER.NAMES.{LOG}", *LOST),
    ],
    "process": [
        *(OBJECT, RECEIPT, f"levelog.{UID}.3._sync.core.pods", f"levelog-lease.{UID}.webs.ingest"),
        *(f"$JS.API.CONSUMER.DURABLE.CREATE.{LOG}.other", f"$JS.API.STREAM.UPDATE.{LOG}", *LOST),
    ],
    "actuate": [
        *(OBJECT, f"levelog.{UID}.3._receipt.other", f"levelog.{UID}.3._gap.core.pods"),
        *(f"$JS.API.STREAM.MSG.GET.{LOG}", f"$JS.API.CONSUMER.CREATE.{LOG}"),
    ],
    "retry": [OBJECT, RECEIPT, f"levelog-notify.{UID}.other.wake", f"$JS.API.STREAM.MSG.GET.{LOG}"],
    "doctor": [OBJECT, f"$JS.API.CONSUMER.CREATE.{LOG}", f"$JS.API.STREAM.CREATE.{LOG}"],
}
"""Subjects that others publish to, by user."""
LISTENED: Final = {
    "ingest": ["_INBOX.levelog-process.>", "levelog.>", f"levelog-notify.{UID}.webs.*"],
    "process": ["_INBOX.levelog-actuate.>", "_INBOX.>", f"levelog.{UID}.>"],
    "actuate": ["_INBOX.levelog-process.>", f"levelog.{UID}.3.>", "$JS.EVENT.>"],
    "retry": ["_INBOX.levelog-process.>", f"levelog.{UID}.>", f"levelog-notify.{UID}.webs.*"],
    "doctor": ["_INBOX.levelog-process.>", f"levelog.{UID}.>"],
}
"""Subjects that others listen to, by user."""


@pytest.mark.parametrize("user", PUBLISHED)
async def test_nobody_may_publish_or_listen_to_what_is_anothers(server: NatsServer, tmp_path: Path, user: str) -> None:
    async def ignore(_: object) -> None:
        raise AssertionError

    for subject in PUBLISHED[user]:
        async with await _connected(server, tmp_path, user) as connection:
            await connection.publish_all([Message(subject, b"", b"")])
            await _refused(connection, f"may not publish to {subject}: give it that permission")
    for subject in LISTENED[user]:
        async with await _connected(server, tmp_path, user) as connection:
            await connection.subscribe(subject, ignore)
            await _refused(connection, f"may not subscribe to {subject}: give it that permission")


async def test_a_process_that_may_not_do_its_work_ends_with_a_sentence(tmp_path: Path) -> None:
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        cluster = Cluster(sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
        users, seeds = nats_users(tmp_path, cluster, "webs")
        users = users.replace(f'"levelog.{cluster}.*._sync.*.*"', "")
        async with NatsServer(settings=users) as server:
            levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
            arguments = ("--nats-url", server.url, "--nats-nkey-file", seeds["ingest"])
            said = await levelog.refused("ingest", WEBS_FILE, *arguments, status=2)
    assert said.startswith(f"NATS at {server.url} refused a subject, this user may not publish to levelog.{cluster}.")
    assert "._sync." in said


@pytest_asyncio.fixture
async def migrated(private_postgres: PostgresServer) -> AsyncIterator[str]:
    async with private_postgres.database() as url:
        await grant_roles(url)
        await upgrade(as_role(url, "owner"))
        await grant_roles(url)
        yield url


async def test_no_role_may_do_what_is_anothers(migrated: str) -> None:
    ddl = (
        "CREATE TABLE t ()",
        "CREATE SCHEMA s",
        "CREATE TEMP TABLE t ()",
        "DROP TABLE levels",
        "ALTER TABLE levels ADD x int",
    )
    writes = ("DELETE FROM objects", "UPDATE levels SET round = 0", "DELETE FROM decisions", "DELETE FROM checkpoints")
    refused = {
        "processor": (*ddl, "DELETE FROM alembic_version", "UPDATE decisions SET status = ''"),
        "actuator": (
            *(*ddl, *writes, "SELECT * FROM objects", "SELECT * FROM levels", "DELETE FROM intents"),
            *("UPDATE intents SET body = '{}'", "UPDATE intents SET target = ''", "INSERT INTO intents DEFAULT VALUES"),
            *("UPDATE wakeups SET parent = ''", "DELETE FROM wakeups", "SELECT causes FROM wakeups"),
        ),
        "retrier": (
            *(*ddl, *writes, "UPDATE intents SET state = 'pending'", "UPDATE intents SET body = '{}'"),
            *("UPDATE wakeups SET parent = ''", "DELETE FROM wakeups", "SELECT * FROM index_entries"),
        ),
        "reader": (*ddl, *writes, "UPDATE intents SET state = 'pending'", "SELECT * FROM intents FOR UPDATE"),
    }
    for role, statements in refused.items():
        async with _Role(migrated, role) as connection:
            await connection.fetch("SELECT * FROM intents")
            for statement in statements:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)


async def test_no_role_gets_into_the_database_of_another_application(
    migrated: str, private_postgres: PostgresServer
) -> None:
    async with private_postgres.database() as other:
        await grant_roles(other)
        for role in ("owner", "processor", "actuator", "retrier", "reader"):
            strange = make_url(as_role(other, role)).set(database=make_url(migrated).database)
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for database"):
                await asyncpg.connect(plain(strange.render_as_string(hide_password=False)), timeout=60)


async def test_retry_may_tell_of_a_parent_that_it_is_not_evaluated_yet(migrated: str, tmp_path: Path) -> None:
    async with await Database.open(as_role(migrated, "processor")) as database:
        scope = await open_scope(
            database,
            cluster=UID,
            application=Application("webs"),
            partitions=1,
            stream_created="2026-01-01T00:00:00Z",
            fingerprint="",
            code=[Handler(kind="view", name="webs/pods", fingerprint="", resource="webs.example.com")],
        )
        async with database.transaction() as connection:
            place = {"scope": scope.number, "view": "webs/pods", "parent": "webs.example.com/default/shop"}
            await connection.execute(insert(wakeups).values(**place, partition=0, cause=1, generation=1))
    retrier = {"LEVELOG_DATABASE_URL": as_role(migrated, "retrier")}
    said = await Levelog(tmp_path).refused("retry", "shop", status=2, env=retrier)
    assert said == ("there is nothing to try again: webs/pods of webs.example.com/default/shop is not evaluated yet")


class _Role:
    """A connection of a role's own."""

    def __init__(self, url: str, role: str) -> None:
        self._url = plain(as_role(url, role))

    async def __aenter__(self) -> asyncpg.Connection:
        self._connection = await asyncpg.connect(self._url, timeout=60)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


async def _connected(server: NatsServer, folder: Path, user: str) -> Connection:
    access = NatsAccess(nkey_file=folder / f"{user}.nk")
    return await connect(server.url, access=access, inbox=f"_INBOX.levelog-{user}", timeout=LONG)


async def _refused(connection: Connection, what: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        async with asyncio.timeout(LONG.total_seconds()):
            await connection.until_refused()
    assert what in str(raised.value)
