"""`levelog ingest` as processes: one reads, another stands by, and takes over from one that is killed."""

from pathlib import Path

import msgspec

from levelog_base.wire.objects import Cluster
from levelog_base.wire.records import ObjectSeen
from levelog_log.stream import clusters, open_stream
from levelog_log.transport.connection import connect
from levelog_sandbox import Sandbox
from rigs.levelog import WEBS_FILE, Levelog, define_webs
from rigs.logs import forget_leases, read_all
from rigs.nats import NatsServer
from rigs.waiting import until

PAGERS = """
import os
import time
from datetime import timedelta
from pathlib import Path

from levelog import External, Level, Objects, Operator, Resource

op = Operator("pages")


class Map(Resource, version="v1", plural="configmaps", kind="ConfigMap"):
    pass


class Pager(External, plural="pagers"):
    number: str


@op.source(Pager, every=timedelta(seconds=0.5))
def pagers():
    with Path("looks").open("a") as looks:
        print(os.getpid(), file=looks, flush=True)
    while Path("hold").exists():
        time.sleep(0.05)
    yield Pager(name="main", number=Path("number").read_text())


@op.view(reads=[Pager])
def known(map: Map, objects: Objects) -> Level[bool]:
    return Level(desired=True, actual=objects.get(Pager, "main") is not None)
"""


async def test_a_source_is_read_by_one_process_and_by_another_once_that_is_killed_in_the_middle(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    (tmp_path / "pagers.py").write_text(PAGERS)
    (tmp_path / "number").write_text("112")
    looks = tmp_path / "looks"
    looks.touch()

    async def numbers() -> list[str]:
        async with await connect(nats_server.url) as connection:
            if not (known := await clusters(connection)):
                return []
            records = await read_all(await open_stream(connection, Cluster(known[0])))
        seen = [each.record for each in records if isinstance(each.record, ObjectSeen)]
        return [msgspec.json.decode(each.body)["number"] for each in seen if each.key.resource == "pagers"]

    async with Sandbox() as sandbox:
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        levelog.env["LEVELOG_NATS_URL"] = nats_server.url
        first = levelog.start("ingest", "pagers.py")
        second = None
        try:
            await first.says("leads: does ingest")
            second = levelog.start("ingest", "pagers.py")
            await second.says("stands by: ")
            await until(numbers, "the record of the source", accept=lambda found: found == ["112"], seconds=60)
            (tmp_path / "hold").touch()
            before = len(looks.read_text().splitlines())
            await until(lambda: len(looks.read_text().splitlines()) > before, "a look under way", seconds=60)
            assert set(looks.read_text().split()) == {str(first.pid)}
            (tmp_path / "number").write_text("113")
            first.kill()
            await forget_leases(nats_server)
            (tmp_path / "hold").unlink()
            await second.says("leads: does ingest")

            async def is_recorded_again() -> bool:
                return "113" in await numbers()

            await until(is_recorded_again, "the record of what the source says now", seconds=60)
            assert await numbers() == ["112", "113"]
            assert set(looks.read_text().split()) == {str(first.pid), str(second.pid)}
            assert await second.stops() == 0
        finally:
            for process in (first, second):
                if process is not None:
                    process.kill()


async def test_a_resource_that_is_served_in_other_versions_only_is_told_with_these(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    (tmp_path / "webs2.py").write_text(
        WEBS_FILE.read_text().replace('version="v1", plural="webs"', 'version="v2", plural="webs"')
    )
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        levelog.env["LEVELOG_NATS_URL"] = nats_server.url
        with levelog.start("ingest", "webs2.py") as ingest:
            await ingest.says("the cluster does not serve webs.example.com in version v2, but in version v1")
            assert await ingest.stops() == 0
