"""Checks of NATS and the database: whether each answers, fits levelog, and keeps its data."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.counting import counted
from levelog_base.errors import LevelogError
from levelog_base.secrets.suspects import suspects
from levelog_base.wire.objects import Cluster
from levelog_cli.checks.findings import Finding
from levelog_cli.loading import LoadedApplication
from levelog_cli.servers.backing import known_redactor
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.databases import database_url, has_database
from levelog_cli.servers.embedded import MAX_PAYLOAD, nats_program
from levelog_cli.servers.nats import agreements, connect_nats
from levelog_cli.settings import OnOff, Settings
from levelog_cli.wiring.roles import Role
from levelog_log.leases import holder_of
from levelog_log.stream import LogStream, clusters, open_stream
from levelog_log.transport.connection import SMALL_PAYLOAD_BYTES, Connection
from levelog_log.transport.jetstream import Group
from levelog_migrations import check, head
from levelog_store.connect.database import Database
from levelog_store.look.contact import listed_resources, read_index_failures, read_unreadable
from levelog_store.look.recall import read_bodies
from levelog_store.owners.scopes import find_scopes
from levelog_store.rows import Scope

_NATS, _LOG = "nats", "log"
_SILENT: Final = timedelta(seconds=5)
"""After it a server of NATS counts as away; it misses four heartbeats then."""
_MOST_OBJECTS: Final = 200
"""Most objects of a resource that are looked through for secrets: they have the same fields."""
_ATOMIC_SINCE: Final = (2, 12, 1)  # atomic batches with ids: ADR-50 of nats-io/nats-architecture-and-design


async def examine_nats(
    settings: Settings, cluster: Cluster | None, application: LoadedApplication | None
) -> AsyncIterator[Finding]:
    """Look at the server that is given, else at the embedded one, which runs only while an application does."""
    url = settings.nats_url
    data = DataDir(settings.data_dir)
    if not url:
        try:
            url = data.running_nats_url()
            program = nats_program()
        except LevelogError as error:
            yield Finding.wrong(_NATS, error)
            return
        if not url:
            yield Finding.ok(_NATS, f"embedded: {program} is started by `levelog run`, with its data in {data.shown}")
            return
    try:
        connection = await connect_nats(settings, url, "levelog doctor")
    except LevelogError as error:
        yield Finding.wrong(_NATS, error)
        return
    async with connection:
        for finding in _server(connection, is_embedded=not settings.nats_url):
            yield finding
        try:
            async for finding in _stream(settings, connection, cluster, application):
                yield finding
        except LevelogError as error:
            yield Finding.wrong(_LOG, error)


def _server(connection: Connection, *, is_embedded: bool) -> list[Finding]:
    version = tuple(map(int, re.findall(r"\d+", connection.server_version)[:3]))
    size = connection.max_payload_bytes
    return [
        Finding.ok(_NATS, f"{connection.url}, version {connection.server_version}, with JetStream")
        if version >= _ATOMIC_SINCE
        else Finding.wrong(
            _NATS,
            f"{connection.url} is version {connection.server_version}, which has no atomic batches with ids",
            "use nats-server 2.12.1 or newer",
        ),
        Finding.ok(_NATS, f"takes messages of {size} bytes")
        if size >= SMALL_PAYLOAD_BYTES
        else Finding.wrong(
            _NATS, f"takes messages of {size} bytes only, objects reach 1.5 MiB", f"max_payload: {MAX_PAYLOAD}"
        ),
        Finding.ok(_NATS, "syncs every acknowledged write to disk")
        if is_embedded
        else Finding.note(
            _NATS,
            "whether acknowledged writes are synced to disk cannot be seen from here; by default they are after 2 min",
            "jetstream { sync_interval: always } in the server's configuration",
        ),
    ]


async def _stream(
    settings: Settings, connection: Connection, cluster: Cluster | None, application: LoadedApplication | None
) -> AsyncIterator[Finding]:
    known = await clusters(connection)
    if cluster is None:
        cluster = Cluster(settings.cluster) or (known[0] if len(known) == 1 else None)
    if cluster is None and known:
        text = f"there are logs of several clusters, {', '.join(known)}, and which is meant is not known"
        yield Finding.note(_LOG, text, "--cluster UID")
        return
    if cluster is None or cluster not in known:
        others = f"; there are logs of other clusters: {', '.join(known)}" if known else ""
        yield Finding.ok(_LOG, f"there is no log of the cluster yet, ingest makes it{others}")
        return
    stream = await open_stream(connection, cluster)
    state = await stream.state()
    yield Finding.ok(
        _LOG,
        f"{stream.name} holds {state.messages} records, {state.bytes} bytes, in {stream.partitions} partitions, "
        f"each for {stream.max_age.days} days",
    )
    if state.missing:
        text = f"it lacks {counted(state.missing, 'record')} from between its first and its last"
        yield Finding.wrong(_LOG, text, "NATS lost them, or somebody deleted them (docs/recovery.md)")
    if (group := await stream.group()) is not None:
        yield _kept(group)
    yield _redaction(settings, stream)
    if application is None:
        return
    if (held := await holder_of(stream, application.name, Role.INGEST)) is not None:
        yield Finding.ok(_LOG, f"{held.holder} watches for {application.name} since {held.since:%Y-%m-%d %H:%M:%S} UTC")
    for agreement in await agreements(stream, application, settings.namespaces):
        if agreement.refusal:
            yield Finding.wrong(_LOG, agreement.refusal)
        elif agreement.replaces:
            mend = "nothing: the next ingest lists it anew, what reads it is blocked until then, history stays"
            yield Finding.note(_LOG, agreement.replaces, mend)


def _kept(group: Group) -> Finding:
    """Whether enough servers of NATS keep the log, and are up to date."""
    text = f"kept by {len(group.replicas) + 1} servers of NATS cluster {group.name}; {group.leader} leads"
    behind = [
        f"{peer.name} was last heard of {peer.active / 1e9:.0f} s ago, and lacks {peer.lag} records"
        for peer in group.replicas
        if peer.active > _SILENT.total_seconds() * 1e9
    ]
    if behind:
        return Finding.wrong(_LOG, f"{text}; {', '.join(behind)}", "look at that server of NATS")
    if not group.replicas:
        return Finding.note(_LOG, text, "with three, it survives the loss of one: start ingest with --log-replicas 3")
    return Finding.ok(_LOG, text)


def _redaction(settings: Settings, stream: LogStream) -> Finding:
    """Whether the key and the rules are those that the log began with."""
    is_known = settings.redaction_key_file or DataDir(settings.data_dir).known_redaction_key
    if not is_known and settings.redaction is OnOff.ON:
        text = "whether its redaction is that of the processes is not checked without their key"
        return Finding.note(_LOG, text, "--redaction-key-file FILE, and --redact as they have it")
    redactor = known_redactor(settings)
    try:
        stream.require_redaction(redactor.digest)
    except LevelogError as error:
        return Finding.wrong(_LOG, error)
    return Finding.ok(_LOG, "its redaction is off" if redactor.is_off else "its redaction has the same key and rules")


_DATABASE = "database"


async def examine_database(settings: Settings) -> AsyncIterator[Finding]:
    """Look at the database that is given, else at the embedded one, which `levelog run` makes."""
    try:
        if not has_database(settings):
            yield Finding.ok(_DATABASE, f"embedded: SQLite, made by `levelog run` in {settings.data_dir}")
            return
        url = database_url(settings)
        async with await Database.open(url, read_only=True) as database:
            facts = await database.server_facts()
            yield Finding.ok(_DATABASE, f"{database.name}, {facts.version}")
            if not facts.is_durable:
                yield Finding.wrong(
                    _DATABASE, "loses what it committed when its machine fails: fsync is off", "fsync = on"
                )
        await check(url)
        yield Finding.ok(_DATABASE, f"is at revision {head()}")
        async with await Database.open(url, read_only=True) as database, database.reading() as connection:
            scopes = await find_scopes(connection)
            names = sorted({scope.application for scope in scopes})
            if database.is_shared and len(names) > 1 and not settings.shared_database:
                yield Finding.wrong(
                    _DATABASE,
                    f"holds applications {', '.join(names)}: who may write rows of one may write those of all",
                    "a database for each, see deploy/roles.sql; or --shared-database, if they trust each other",
                )
            for scope in scopes:
                yield Finding.ok(_DATABASE, f"holds application {scope.application} on cluster {scope.cluster}")
                for record in await read_unreadable(connection, scope):
                    yield Finding.note(
                        "records",
                        f"{record.place}: a record cannot be read and is skipped, by application {scope.application}: "
                        f"{record.error}",
                        "change the object, so that the API sends it anew",
                    )
                for index, name, error in await read_index_failures(connection, scope):
                    yield Finding.note(
                        "indices",
                        f"{index}: its function fails for {name}, in application {scope.application}: {error}",
                        "change the object, or the function: docs/indices.md says what waits for that",
                    )
                for finding in await _secrets(connection, scope):
                    yield finding
    except LevelogError as error:
        yield Finding.wrong(_DATABASE, error)


async def _secrets(connection: AsyncConnection, scope: Scope) -> list[Finding]:
    """Fields that look like secrets and are recorded in clear: where, and in how many objects; never their values."""
    counts: Counter[str] = Counter()
    looked_at = 0
    for resource in await listed_resources(connection, scope):
        bodies = await read_bodies(connection, scope, resource, _MOST_OBJECTS)
        looked_at += len(bodies)
        for body in bodies:
            counts.update(suspects(resource, body))
    found = [
        Finding.note(
            "secrets",
            f"{place} looks like a secret and is in clear, in {count} of the objects",
            "--redact with that rule, in a new log, if no value of it is to be recorded (docs/redaction.md)",
        )
        for place, count in sorted(counts.items())
    ]
    text = (
        f"looked through {looked_at} objects of application {scope.application}, at most {_MOST_OBJECTS} of a resource"
    )
    return [*found, Finding.ok("secrets", text)]
