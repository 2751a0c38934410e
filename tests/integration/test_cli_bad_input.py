"""What a user gets wrong ends in one sentence and a status other than 0, with nothing half done."""

import sqlite3
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from levelog_base.wire.objects import Cluster
from levelog_log.stream import ensure_stream
from levelog_log.transport.connection import connect
from levelog_sandbox import Denial, Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.nats import NatsServer
from rigs.ports import free_port
from rigs.waiting import until

FAILING = """
from collections.abc import Iterator

from levelog import Call, Index, Intent, Level, Operator, Resource, call

op = Operator("failing")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


@op.effect
def page(request: str) -> None:
    raise ConnectionError("nobody answers")


@op.view
def seen(web: Web) -> Level[int]:
    raise ValueError("odd")


@op.view
def paged(web: Web, page: Index[str, Call[str, None]]) -> Level[int]:
    return Level(1, len(page[web.metadata.uid]))


@op.reconcile(paged)
def send(web: Web) -> Iterator[Intent]:
    yield call(page, web.metadata.name)
"""


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(pods_run=True) as started:
        yield started


@pytest_asyncio.fixture
async def levelog(sandbox: Sandbox, tmp_path: Path) -> Levelog:
    """The command with access to a sandbox in which Webs are defined."""
    await define_webs(sandbox)
    return Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))


def kubeconfig_of(url: str, path: Path) -> Path:
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    path.write_text(
        yaml.safe_dump({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"})
    )
    return path


async def test_no_cluster_is_configured(tmp_path: Path) -> None:
    sentence = await Levelog(tmp_path).refused("run", WEBS_FILE, status=2)
    assert sentence.startswith("no cluster is configured: there is no ~/.kube/config, KUBECONFIG is not set")
    assert sentence.endswith("; `levelog dev` brings a cluster in memory")
    assert not (tmp_path / ".levelog").exists()


async def test_the_cluster_cannot_be_reached(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    levelog = Levelog(tmp_path, kubeconfig_of(url, tmp_path / "kubeconfig"))
    sentence = await levelog.refused("run", WEBS_FILE, status=1)
    assert sentence == f"GET /version: {url} cannot be reached: Connection refused"
    assert not levelog.data.exists()


async def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path, kubeconfig_of("http://127.0.0.1:1", tmp_path / "kubeconfig"))
    sentence = await levelog.refused("run", WEBS_FILE, "--context", "moon", status=2)
    assert sentence.startswith("kubeconfig ")
    assert "moon" in sentence
    sentence = await levelog.refused("run", WEBS_FILE, "--kubeconfig", "none", status=2)
    assert sentence == "kubeconfig none does not exist"
    assert not levelog.data.exists()


async def test_nats_cannot_be_reached(levelog: Levelog) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    for command in ("run", "ingest"):
        sentence = await levelog.refused(command, WEBS_FILE, "--nats-url", url, status=1)
        assert sentence.startswith(f"NATS at {url} cannot be reached: ")
    assert not (levelog.data / "levelog.db").exists()


async def test_a_postgresql_that_was_not_migrated(
    levelog: Levelog, nats_server: NatsServer, empty_postgres_url: str
) -> None:
    env = {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": empty_postgres_url}
    for command in ("run", "process", "actuate"):
        sentence = await levelog.refused(command, WEBS_FILE, status=2, env=env)
        assert "has no tables of levelog yet" in sentence
        assert "run `levelog migrate`" in sentence
    migrated = await levelog.ends("migrate", env=env)
    assert migrated.status == 0
    assert migrated.stdout.startswith("the database is at revision ")


async def test_a_variable_that_is_misspelt(levelog: Levelog) -> None:
    ended = await levelog.ends("crd", WEBS_FILE, env={"LEVELOG_DATABSE_URL": "postgresql://a/b"})
    assert ended.status == 0
    assert ended.stderr.endswith("LEVELOG_DATABSE_URL is no setting; did you mean LEVELOG_DATABASE_URL?\n")


async def test_who_looks_back_where_nothing_ran_hears_what_to_name(tmp_path: Path) -> None:
    for command in (("levels",), ("retry", "shop"), ("plan", WEBS_FILE)):
        assert await Levelog(tmp_path).refused(*command, status=2) == (
            "there is no database in .levelog: give --database-url, or the --data-dir that `levelog run` used"
        )
    assert not (tmp_path / ".levelog").exists()


async def test_a_data_directory_that_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    levelog, sentence = Levelog(tmp_path), "data directory .levelog cannot be read: File name too long"
    levelog.data.symlink_to("a" * 300)  # which is refused to root too, unlike that of another account
    for command in (("levels",), ("retry", "shop"), ("plan", WEBS_FILE)):
        assert await levelog.refused(*command, status=2) == sentence
    ended = await levelog.ends("doctor")
    assert (ended.status, ended.stderr) == (1, "")
    assert sentence in ended.stdout


async def test_a_database_of_a_newer_revision(levelog: Levelog) -> None:
    await levelog.ends("migrate")
    with sqlite3.connect(levelog.data / "levelog.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
    database.close()
    for command in (("run", WEBS_FILE), ("levels",), ("migrate",)):
        sentence = await levelog.refused(*command, status=2)
        assert "is at revision from-the-future, which this code, at " in sentence


async def test_processes_of_their_own_need_what_they_share(levelog: Levelog) -> None:
    for command in ("ingest", "process", "actuate"):
        sentence = await levelog.refused(command, WEBS_FILE, status=2)
        assert sentence == (
            f"levelog {command} shares the log with other processes: give --nats-url or set LEVELOG_NATS_URL"
        )
    for command in ("process", "actuate"):
        sentence = await levelog.refused(command, WEBS_FILE, "--nats-url", "nats://127.0.0.1:4222", status=2)
        assert sentence == (
            f"levelog {command} shares the database with other processes: "
            "give --database-url or set LEVELOG_DATABASE_URL"
        )
    assert not levelog.data.exists()


async def test_secrets_are_not_read_without_a_key(levelog: Levelog, nats_server: NatsServer) -> None:
    (levelog.folder / "secrets.py").write_text(
        "from levelog import Operator, Resource\n"
        "op = Operator('secrets')\n"
        "class Secret(Resource, version='v1', plural='secrets'):\n    data: dict[str, str] = {}\n"
        "@op.index\ndef by_name(secret: Secret):\n    yield secret.metadata.name, len(secret.data)\n"
    )
    nats = ("--nats-url", nats_server.url)
    sentence = await levelog.refused("ingest", "secrets.py", *nats, status=2, env={"LEVELOG_REDACTION_KEY_FILE": ""})
    assert "recorded only as keyed hashes: give --redaction-key-file or set LEVELOG_REDACTION_KEY_FILE" in sentence
    sentence = await levelog.refused("ingest", "secrets.py", *nats, "--redact", "annotation:a,secrets", status=2)
    assert sentence.startswith("redaction rule 'secrets': it is RESOURCE:PATH")
    (levelog.folder / "key").write_text("short\n")
    sentence = await levelog.refused("ingest", "secrets.py", *nats, "--redaction-key-file", "key", status=2)
    assert sentence == "redaction key file key: the redaction key has 5 bytes; it needs at least 16"
    sentence = await levelog.refused("ingest", "secrets.py", *nats, "--redaction-key-file", "none", status=2)
    assert sentence == "redaction key file none cannot be read: No such file or directory"


async def test_a_resource_that_the_cluster_does_not_have_is_waited_for(sandbox: Sandbox, tmp_path: Path) -> None:
    levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
    with levelog.start("run", WEBS_FILE) as running:
        line = await running.says("does not serve")
        absent = "waits for webs.example.com: the cluster does not serve webs.example.com in version v1"
        assert f"{absent}; install its CustomResourceDefinition" in line
        missing = "not listed yet: webs.example.com; `levelog doctor FILE` says why"

        async def is_told() -> bool:
            return missing in (await levelog.ends("levels")).stdout

        await until(is_told, "the resource that there are no levels of")
        await define_webs(sandbox)
        await running.says("listed 0 objects", "webs.example.com")

        async def is_listed() -> bool:
            said = (await levelog.ends("levels")).stdout
            return "no levels" in said and "not listed" not in said

        await until(is_listed, "the list in the tables")


async def test_a_plural_that_is_not_served_is_told_with_what_is_and_waited_for(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    given = 'plural="gadgets", kind="Gadget"'
    (levelog.folder / "wrong.py").write_text(WEBS_FILE.read_text().replace('plural="webs"', given))
    with levelog.start("run", "wrong.py") as running:
        line = await running.says("does not serve", '"level":"warning"')
        assert "the cluster does not serve gadgets.example.com in version v1; it serves webs" in line
        names = ("webs", "gadgets"), ("Web", "Other"), ("singular: web", "singular: other")
        definition = reduce(lambda text, change: text.replace(*change), names, (WEBS / "crd.yaml").read_text())
        sandbox.user.create(yaml.safe_load(definition))
        await running.says("listed 0 objects", "gadgets.example.com")


@pytest.mark.parametrize(
    ("given", "wrong", "sentence"),
    [
        (
            'plural="webs"',
            'plural="webs", scope="Cluster"',
            'webs.example.com has namespaces, its class says otherwise: class Web(…, scope="Namespaced")',
        ),
        (
            'Pod(Resource, version="v1", plural="pods")',
            'Pod(Resource, version="v1", plural="nodes", kind="Node")',
            'nodes has no namespaces, its class says otherwise: class Node(…, scope="Cluster")',
        ),
    ],
)
async def test_a_class_with_the_wrong_scope_is_refused(levelog: Levelog, given: str, wrong: str, sentence: str) -> None:
    text = WEBS_FILE.read_text()
    assert given in text
    (levelog.folder / "wrong.py").write_text(text.replace(given, wrong))
    assert await levelog.refused("run", "wrong.py", status=2) == sentence


@pytest.mark.long
async def test_what_keeps_failing_is_tried_at_the_pace_that_is_given(sandbox: Sandbox, levelog: Levelog) -> None:
    """Doubled from a second on, eight tries of each would take two minutes."""
    (levelog.folder / "failing.py").write_text(FAILING)
    sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))

    async def are_tried() -> bool:
        running.check()
        levels = {level["view"]: level for level in await levelog.levels()}
        if len(levels) < 2 or not levels["failing/paged"]["writes"]:
            return False
        [call] = levels["failing/paged"]["writes"]
        seen = levels["failing/seen"]["tried"] or {"count": 0}
        return bool(call["attempts"] >= 8 and seen["count"] >= 8)

    with levelog.start("run", "failing.py", "--max-backoff", "1") as running:
        await until(are_tried, "eight tries of a view and of an effect")
        assert await running.stops() == 0


async def test_missing_permissions_are_named_before_anything_is_begun(sandbox: Sandbox, levelog: Levelog) -> None:
    sandbox.access.denials += [Denial("watch", "webs.example.com"), Denial("list", "pods")]
    sentence = await levelog.refused("run", WEBS_FILE, status=2)
    assert "may not list pods in all namespaces, nor watch webs.example.com in all namespaces at http://" in sentence
    assert not levelog.data.exists()
    sandbox.access.denials[:] = [Denial("get", "namespaces")]
    elsewhere = {"LEVELOG_NATS_URL": "nats://127.0.0.1", "LEVELOG_DATABASE_URL": "postgresql://127.0.0.1/none"}
    sentence = await levelog.refused("actuate", WEBS_FILE, status=2, env=elsewhere)
    assert "may not get namespaces kube-system" in sentence


async def test_another_cluster_than_the_one_that_was_named(sandbox: Sandbox, levelog: Levelog) -> None:
    sentence = await levelog.refused("run", WEBS_FILE, "--cluster", "another", status=1)
    assert sentence.startswith(f"{sandbox.url} is cluster ")
    assert sentence.endswith(", not another as --cluster says")
    assert not levelog.data.exists()


async def test_the_logs_of_several_clusters(tmp_path: Path, nats_server: NatsServer) -> None:
    async with await connect(nats_server.url) as connection:
        for cluster in ("one", "two"):
            await ensure_stream(connection, Cluster(cluster))
    database = tmp_path / "levelog.db"
    levelog = Levelog(tmp_path)
    await levelog.ends("migrate", "--database-url", database)
    shared = ("--nats-url", nats_server.url, "--database-url", database)
    sentence = await levelog.refused("process", WEBS_FILE, *shared, status=2)
    assert sentence == (
        f"NATS at {nats_server.url} holds the logs of several clusters, one, two: say which with --cluster or "
        "LEVELOG_CLUSTER"
    )
    with levelog.start("process", WEBS_FILE, *shared, "--cluster", "two") as running:
        assert '"cluster":"two"' in await running.says("application webs")


async def test_a_second_process_on_the_embedded_servers(levelog: Levelog) -> None:
    with levelog.start("run", WEBS_FILE) as first:
        await first.says("owns 16 of 16 partitions")
        sentence = await levelog.refused("run", WEBS_FILE, status=2)
        assert sentence.startswith(f"data directory .levelog is in use by another process (pid {first.pid}): ")
        sentence = await levelog.refused("migrate", status=2)
        assert sentence.startswith(f"data directory .levelog is in use by another process (pid {first.pid}): ")
        database = levelog.data / "levelog.db"
        sentence = await levelog.refused("run", WEBS_FILE, "--data-dir", "other", "--database-url", database, status=2)
        assert f"{database} is in use by process {first.pid}" in sentence
        assert first.is_running


async def test_what_no_namespace_can_be_called_is_refused(tmp_path: Path) -> None:
    for name in ("!", "team-[ab]", "!Team", "Team", "a/b", "-a", "a" * 64):
        sentence = await Levelog(tmp_path).refused("rbac", WEBS_FILE, f"--namespace={name}", status=2)
        assert sentence.startswith(f"--namespace: {name!r} is no name of a namespace")
