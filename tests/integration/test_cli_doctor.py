"""`levelog doctor`: every line says that something is well, or what is wrong and how to mend it."""

import copy
import json
from pathlib import Path

import yaml

from levelog_base.wire.objects import Cluster
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream, open_stream
from levelog_log.transport.connection import connect
from levelog_sandbox import Denial, Sandbox
from rigs.kopfrivals import DEFINITION
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define, define_webs
from rigs.logs import deletable, delete_records, web_message, writer_for
from rigs.nats import NatsServer
from rigs.natscluster import NAMES, NatsCluster
from rigs.ports import free_port
from rigs.waiting import until


async def examine(levelog: Levelog, *arguments: str | Path, is_well: bool) -> str:
    """Its output, one finding a line."""
    ended = await levelog.ends("doctor", *arguments)
    assert ended.stderr == "", ended
    assert ended.status == (0 if is_well else 1), ended
    found = ended.stdout.replace(f"\n{'':<19} →", " →")
    assert all(line.split()[0] in {"ok", "note", "wrong"} for line in found.splitlines()), found
    assert all(" → " in line for line in found.splitlines() if line.startswith("note")), found
    return found


def lines(found: str, subject: str) -> list[str]:
    return [line for line in found.splitlines() if line.split()[1] == subject]


async def test_what_is_well_is_said_to_be(sandbox: Sandbox, levelog: Levelog) -> None:
    await define_webs(sandbox)
    found = await examine(levelog, WEBS_FILE, is_well=True)
    assert lines(found, "operators") == ["ok     operators    application webs, which reads pods, webs.example.com"]
    assert sandbox.url in lines(found, "cluster")[0]
    assert "ok     resource     webs.example.com is served in version v1" in found
    assert "ok     permissions  may get, list, watch, create, patch, delete pods" in found
    assert "ok     nats         embedded: " in found
    assert "ok     database     embedded: SQLite, made by `levelog run` in .levelog" in found
    assert not levelog.data.exists()
    for role, said in (
        ("ingest", ["may list, watch pods", "may list, watch webs.example.com"]),
        ("actuate", ["may get, create, patch, delete pods"]),
    ):
        found = await examine(levelog, WEBS_FILE, "--role", role, is_well=True)
        assert lines(found, "permissions") == [f"ok     permissions  {each}" for each in said]
    ended = await levelog.ends("doctor", WEBS_FILE, "--role", "nobody")
    assert (ended.status, "Invalid value for '--role'" in ended.stderr) == (2, True)


async def test_everything_that_is_wrong_is_told_in_one_go(sandbox: Sandbox, levelog: Levelog) -> None:
    sandbox.access.denials += [Denial("watch", "pods"), Denial("delete", "pods")]
    nats, postgres = f"nats://127.0.0.1:{free_port()}", f"postgresql://me:secret@127.0.0.1:{free_port()}/x"
    found = await examine(levelog, WEBS_FILE, "--nats-url", nats, "--database-url", postgres, is_well=False)
    assert "wrong  resource     the cluster does not serve webs.example.com in version v1 → install its Custom" in found
    missing = "may not watch pods in all namespaces, nor delete pods in all namespaces"
    assert f"wrong  permissions  {missing} → grant it with the roles" in found
    assert lines(found, "nats")[0].startswith(f"wrong  nats         NATS at {nats} cannot be reached: ")
    assert lines(found, "database")[0].startswith("wrong  database     ")
    assert "secret" not in found


async def test_a_wrong_operator_file_does_not_keep_the_rest_from_being_examined(levelog: Levelog) -> None:
    (levelog.folder / "wrong.py").write_text("op =\n")
    found = await examine(levelog, "wrong.py", is_well=False)
    assert lines(found, "operators")[0].startswith("wrong  operators    operator file wrong.py has a syntax error")
    assert lines(found, "cluster")[0].startswith("ok ")
    assert lines(found, "permissions") == ["note   permissions  not checked without operators that load → see above"]


async def test_a_class_that_names_no_resource_is_answered_with_what_it_may_mean(levelog: Levelog) -> None:
    (levelog.folder / "wrong.py").write_text(
        """
from levelog import Level, Operator, Resource

op = Operator("wrong")
class Service(Resource, version="v1", plural="service"): pass
class Map(Resource, version="v1", plural="configmap"): pass
class Deployment(Resource, group="apps", version="v2", plural="deployments"): pass
class Unknown(Resource, group="example.org", version="v1", plural="unknowns"): pass
@op.view
def a(service: Service) -> Level[int]: return Level(1, 1)
@op.view
def b(map: Map) -> Level[int]: return Level(1, 1)
@op.view
def c(deployment: Deployment) -> Level[int]: return Level(1, 1)
@op.view
def d(unknown: Unknown) -> Level[int]: return Level(1, 1)
"""
    )
    found = await examine(levelog, "wrong.py", is_well=False)
    assert [line.partition("does not serve ")[2] for line in lines(found, "resource")] == [
        'configmap in version v1; did you mean "configmaps"? → class Map(…, plural="configmaps")',
        'service in version v1; did you mean "services"? → class Service(…, plural="services")',
        'deployments.apps in version v2, but in version v1 → class Deployment(…, version="v1")',
        "unknowns.example.org in version v1 → install its CustomResourceDefinition (`levelog crd`), or mend its class; "
        "until then levelog waits for it",
    ]


async def test_a_status_that_is_written_and_has_no_subresource_is_told(sandbox: Sandbox, levelog: Levelog) -> None:
    (levelog.folder / "shops.py").write_text(
        """
from levelog import Operator, Resource, Struct
from levelog.conditions import Condition

op = Operator("shops")
class Status(Struct):
    conditions: list[Condition] = []
class Shop(Resource, group="example.com", version="v1", plural="shops"):
    status: Status = Status()
op.conditions(Shop)
"""
    )
    lacking = copy.deepcopy(DEFINITION)
    del lacking["spec"]["versions"][0]["subresources"]
    await define(sandbox, lacking)
    found = await examine(levelog, "shops.py", is_well=False)
    assert "wrong  resource     shops.example.com is served in version v1 without a subresource for the status" in found
    sandbox.user.apply(DEFINITION)
    found = await examine(levelog, "shops.py", is_well=True)
    assert "ok     resource     shops.example.com is served in version v1" in found


async def test_each_finding_is_an_object_for_programs(sandbox: Sandbox, levelog: Levelog) -> None:
    sandbox.access.denials.append(Denial("watch", "pods"))
    ended = await levelog.ends("doctor", WEBS_FILE, "--json")
    assert ended.status == 1
    findings = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {
        "found": "ok",
        "subject": "operators",
        "text": "application webs, which reads pods, webs.example.com",
    } in findings
    [wrong] = [each for each in findings if each["subject"] == "permissions" and each["found"] == "wrong"]
    assert "watch pods in all namespaces" in wrong["text"]
    assert wrong["mend"].startswith("grant it with the roles")


async def test_the_cluster_cannot_be_reached(tmp_path: Path) -> None:
    found = await examine(Levelog(tmp_path), is_well=False)
    assert lines(found, "cluster")[0].startswith("wrong  cluster      no cluster is configured: ")
    assert lines(found, "nats")[0].startswith("ok ")


async def test_settings_of_nats(levelog: Levelog) -> None:
    async with NatsServer(settings="max_payload: 1MB") as small:
        found = await examine(levelog, "--nats-url", small.url, is_well=False)
    assert "wrong  nats         takes messages of 1048576 bytes only, objects reach 1.5 MiB → max_payload: 8MB" in found
    assert "note   nats         whether acknowledged writes are synced" in found
    async with NatsServer(has_jetstream=False) as bus:
        found = await examine(levelog, "--nats-url", bus.url, is_well=False)
    assert lines(found, "nats")[0].startswith("wrong  nats         JetStream is not enabled on NATS at ")


async def test_a_database_that_was_not_migrated_and_then_is(levelog: Levelog, empty_postgres_url: str) -> None:
    levelog.env["LEVELOG_DATABASE_URL"] = empty_postgres_url
    found = await examine(levelog, is_well=False)
    assert "wrong  database     loses what it committed when its machine fails: fsync is off → fsync = on" in found
    assert "run `levelog migrate`" in lines(found, "database")[-1]
    await levelog.ends("migrate")
    found = await examine(levelog, is_well=False)
    assert lines(found, "database")[-1].startswith("ok     database     is at revision ")


async def test_beside_a_running_application_its_servers_are_examined(sandbox: Sandbox, levelog: Levelog) -> None:
    await define_webs(sandbox)
    with levelog.start("run", WEBS_FILE) as running:
        await running.says("owns 16 of 16 partitions")
        found = await examine(levelog, WEBS_FILE, is_well=True)
        assert "ok     nats         syncs every acknowledged write to disk" in found
        assert " records, " in lines(found, "log")[0]
        assert "holds application webs on cluster " in lines(found, "database")[-1]
        token = (levelog.data / "nats.url").read_text().partition("//")[2].partition("@")[0]
        assert token not in found


async def test_fields_that_look_like_secrets_are_named_and_their_values_are_not(
    sandbox: Sandbox, levelog: Levelog
) -> None:
    await define_webs(sandbox)
    for name in ("one", "two"):
        container = {
            "name": "web",
            "image": "web:1",
            "args": ["--db-password=hunter2"],
            "env": [
                {"name": "PASSWORD", "value": "hunter2"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "token"}}},
            ],
        }
        about = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        sandbox.user.create({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"containers": [container]}})
    with levelog.start("run", WEBS_FILE) as running:
        await running.says("owns 16 of 16 partitions")
        sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        await levelog.in_sync()

        async def has_looked_through() -> str:  # objects are written behind
            found = await examine(levelog, WEBS_FILE, is_well=True)
            return found if "in 2 of the objects" in found else ""

        found = await until(has_looked_through, "both pods in the tables")
        assert "hunter2" not in found
        clear, looked = lines(found, "secrets")
        said = "pods:spec.containers[].args[] looks like a secret and is in clear, in 2 of the objects → "
        assert clear.startswith(f"note   secrets      {said}")
        assert looked.startswith("ok     secrets      looked through ")
        assert looked.endswith(" objects of application webs, at most 200 of a resource")


async def test_a_processor_is_asked_for_no_cluster_and_its_log_is_the_one_on_nats(
    levelog: Levelog, nats_server: NatsServer, tmp_path: Path
) -> None:
    without = Levelog(tmp_path)
    arguments = (WEBS_FILE, "--role", "process", "--nats-url", nats_server.url)
    found = await examine(without, *arguments, is_well=True)
    assert lines(found, "cluster") == ["ok     cluster      not asked: a processor has no access to it"]
    assert "there is no log of the cluster yet" in lines(found, "log")[0]
    async with await connect(nats_server.url, name="test") as connection:
        for cluster in ("one", "two"):
            await ensure_stream(connection, Cluster(cluster), redaction="")
            found = await examine(without, *arguments, "--cluster", cluster, is_well=True)
            assert lines(found, "log")[0].startswith(f"ok     log          levelog-{cluster} holds 0 records")
            if cluster == "one":
                assert lines(await examine(without, *arguments, is_well=True), "log") == lines(found, "log")
    found = await examine(without, *arguments, is_well=True)
    [said] = lines(found, "log")
    assert said.startswith("note   log          there are logs of several clusters, one, two, and which is meant")


async def test_a_log_that_lacks_records_is_told_by_doctor_and_by_history(
    levelog: Levelog, nats_server: NatsServer
) -> None:
    arguments = "--nats-url", nats_server.url, "--cluster", "lacking"
    async with await connect(nats_server.url) as connection:
        stream = await deletable(await ensure_stream(connection, Cluster("lacking"), redaction=""))
        await BatchPublisher(stream).publish(
            [web_message(writer_for(stream), "shop", number) for number in range(1, 5)]
        )
        whole = await levelog.ends("history", "webs.example.com/default/shop", *arguments)
        assert (whole.status, whole.stderr) == (0, "")
        await delete_records(stream, 2, 3)
    said = "lacks 2 records from between its first and its last"
    found = await examine(levelog, WEBS_FILE, "--role", "process", *arguments, is_well=False)
    assert f"wrong  log          it {said} → NATS lost them" in found
    assert (await levelog.ends("history", "webs.example.com/default/shop", *arguments)).stderr == f"the log {said}\n"


async def test_servers_of_nats_that_keep_the_log_and_those_that_are_away_are_named(tmp_path: Path) -> None:
    async with NatsCluster() as cluster:
        await cluster.joined()
        async with await connect(cluster.servers["a"].url) as connection:
            name = (await ensure_stream(connection, Cluster("one"))).name
        leader = await cluster.leader(name)
        follower, other = (each for each in NAMES if each != leader)
        arguments = (WEBS_FILE, "--role", "process", "--nats-url", cluster.servers[other].url)
        found = await examine(Levelog(tmp_path), *arguments, is_well=True)
        assert f"ok     log          kept by 3 servers of NATS cluster test; {leader} leads" in found

        cluster.servers[follower].kill()
        async with await connect(cluster.servers[leader].url) as connection:
            stream = await open_stream(connection, Cluster("one"))

            async def is_missed() -> bool:
                group = await stream.group()
                return group is not None and any(peer.active > 6e9 for peer in group.replicas)

            await until(is_missed, "a leader that misses a follower")
        found = await examine(Levelog(tmp_path), *arguments, is_well=False)
        assert f"{leader} leads; {follower} was last heard of " in found
