"""A log is begun in one way, and a database for one application: who would go on otherwise is refused."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_base.secrets.redaction import Redactor
from levelog_base.secrets.secretrules import Rules
from levelog_base.wire.objects import Application, Cluster, GroupResource, Version
from levelog_base.wire.records import SyncFinished
from levelog_log.appender import Appender
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream
from levelog_log.transport.connection import connect
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from levelog_store.owners.scopes import open_scope
from rigs.levelog import WEBS_FILE, Levelog, define_webs
from rigs.nats import NatsServer

KEY = Path(__file__).parents[1] / "rigs/redaction.key"
RULES = "webs.example.com:spec.image"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as started:
        await define_webs(started)
        yield started


@pytest.fixture
def levelog(sandbox: Sandbox, nats_server: NatsServer, tmp_path: Path) -> Levelog:
    levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
    levelog.env["LEVELOG_NATS_URL"] = nats_server.url
    return levelog


async def begin_log(sandbox: Sandbox, nats: NatsServer, *records: SyncFinished, rules: str = "") -> None:
    cluster = Cluster(sandbox.user.get("namespaces", "kube-system", namespace="")["metadata"]["uid"])
    redactor = Redactor(KEY.read_bytes().strip(), Rules.parse([rules] if rules else []))
    async with await connect(nats.url) as connection:
        stream = await ensure_stream(connection, cluster, redaction=redactor.digest)
        writer = stream.writer("test")
        async with Appender(BatchPublisher(stream)) as appender:
            for record in records:
                await appender.append(*writer.to_all_partitions(record))


def listed(resource: GroupResource, api_version: str, *namespaces: str) -> SyncFinished:
    return SyncFinished(
        resource=resource,
        sync_id="s",
        namespaces=namespaces,
        api_version=api_version,
        application="other",
        version=Version(1),
        time=datetime.now(UTC),
    )


async def test_another_digest_of_redaction_is_refused_by_each_process_and_named_by_the_doctor(
    sandbox: Sandbox, nats_server: NatsServer, levelog: Levelog, postgres_url: str, tmp_path: Path
) -> None:
    await begin_log(sandbox, nats_server, rules=RULES)
    levelog.env["LEVELOG_DATABASE_URL"] = postgres_url
    assert (await levelog.ends("migrate")).status == 0
    for role in ("ingest", "process", "actuate"):
        sentence = await levelog.refused(role, WEBS_FILE, status=2)
        assert "was begun with other rules of redaction: all processes need the same" in sentence
    other = tmp_path / "other.key"
    other.write_text("another key of more than 16 bytes\n")
    for options, how in (
        (("--redact", RULES), ""),
        ((), "with other rules of redaction"),
        (("--redact", RULES, "--redaction-key-file", other), "with another redaction key"),
        (("--redaction-key-file", other), "with another redaction key and other rules of redaction"),
        (("--redaction", "off"), "with redaction"),
    ):
        found = (await levelog.ends("doctor", *options)).stdout
        lines = [line for line in found.splitlines() if line.split()[1:2] == ["log"] and "redaction" in line]
        said = f"was begun {how}: " if how else "ok     log          its redaction has the same key and rules"
        assert [said in line for line in lines] == [True], found
    del levelog.env["LEVELOG_REDACTION_KEY_FILE"]
    assert "is not checked without their key" in (await levelog.ends("doctor")).stdout


async def test_another_api_version_than_is_recorded_is_refused_with_both_named(
    sandbox: Sandbox, nats_server: NatsServer, levelog: Levelog
) -> None:
    await begin_log(sandbox, nats_server, listed(GroupResource(group="example.com", resource="webs"), "example.com/v2"))
    assert (await levelog.refused("ingest", WEBS_FILE, status=2)).startswith(
        "application other records webs.example.com in version example.com/v2, Web of application webs declares "
        "example.com/v1, which is older: declare the version that is recorded, or remove the stream "
    )


async def test_other_namespaces_than_another_application_records_are_refused(
    sandbox: Sandbox, nats_server: NatsServer, levelog: Levelog
) -> None:
    await begin_log(sandbox, nats_server, listed(GroupResource(group="", resource="pods"), "v1", "one", "two"))
    assert await levelog.refused("ingest", WEBS_FILE, "--namespace", "one", status=2) == (
        "application other records pods of namespaces one, two, application webs would record namespaces one: let both "
        "watch the same namespaces, or give each a log of its own"
    )


async def test_a_newer_api_version_takes_over_once_nobody_watches_the_older_one_for_another_application(
    sandbox: Sandbox, nats_server: NatsServer, levelog: Levelog
) -> None:
    newer = WEBS_FILE.read_text().replace('version="v1", plural="webs"', 'version="v2", plural="webs"')
    (levelog.folder / "newer.py").write_text(newer)
    recorded = "records webs.example.com in version example.com/v1, Web of application webs declares example.com/v2"
    other = levelog.start("ingest", WEBS_FILE, "--application", "other")
    ingest = None
    try:
        await other.says("listed 0 objects", "webs.example.com")
        sentence = await levelog.refused("ingest", "newer.py", "--application", "webs", status=2)
        assert sentence.startswith(f"application other, which watches now, {recorded}: stop it, begin this one, ")
        assert await other.stops() == 0
        told = " ".join((await levelog.ends("doctor", "newer.py", "--application", "webs")).stdout.split())
        assert f"note log application other {recorded} → nothing: the next ingest lists it anew" in told
        ingest = levelog.start("ingest", "newer.py", "--application", "webs")
        await ingest.says("the cluster does not serve webs.example.com in version v2, but in version v1")
    finally:
        for process in (other, ingest):
            if process is not None:
                process.kill()


async def with_pages(url: str) -> None:
    """Make an application that is called pages."""
    async with await Database.open(url) as database:
        await open_scope(
            database,
            cluster=Cluster("other"),
            application=Application("pages"),
            partitions=1,
            stream_created="2026-01-01T00:00:00Z",
            fingerprint="",
        )


async def runs(levelog: Levelog, *arguments: str) -> None:
    """Run until it processes, and stop it."""
    with levelog.start("run", WEBS_FILE, *arguments) as running:
        await running.says("owns 16 of 16 partitions")
        assert await running.stops() == 0


async def test_an_application_is_not_made_beside_another_unless_that_is_said(
    levelog: Levelog, postgres_url: str
) -> None:
    await with_pages(postgres_url)
    levelog.env["LEVELOG_DATABASE_URL"] = postgres_url
    await runs(levelog, "--application", "pages")  # on any cluster
    said = await levelog.refused("run", WEBS_FILE, status=2)
    assert "holds application pages" in said
    assert said.endswith("give webs a database of its own, or, if they trust each other, --shared-database")
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications" not in examined.stdout

    for arguments in (("--shared-database",), ()):  # once it is there, it goes on
        await runs(levelog, *arguments)
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications pages, webs: who may write rows of one" in examined.stdout.replace("\n" + " " * 20, " ")
    examined = await levelog.ends("doctor", WEBS_FILE, "--shared-database")
    assert "holds applications" not in examined.stdout


async def test_a_file_of_sqlite_takes_several(levelog: Levelog) -> None:
    for name in ("pages", "webs"):
        await runs(levelog, "--application", name)
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications" not in examined.stdout
