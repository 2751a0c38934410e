"""PostgreSQL, NATS and kube-apiserver stopped for half a minute each, under ingest, a processor and an actuator."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rigs.api import MERGE_PATCH
from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog
from rigs.nats import NatsServer
from rigs.postgres import PostgresServer
from rigs.waiting import until

AWAY_SECONDS: Final = 30
MOST_SECONDS: Final = 15.0
"""Half of what a wait may come to that is doubled each time."""
MOST_LINES: Final = 4
"""Of one process, over an outage."""
PAGE: Final = "/apis/example.com/v1/namespaces/default/pages/hello"
GREETING: Final = "/api/v1/namespaces/default/configmaps/hello"
OPERATOR: Final = """
from collections.abc import Iterator

from levelog import Manifest, Operator, Resource, Struct

op = Operator("greetings")

class PageSpec(Struct):
    text: str

class Page(Resource, group="example.com", version="v1", plural="pages"):
    spec: PageSpec

class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass

@op.children(Page, of=ConfigMap)
def greeting(page: Page) -> Iterator[Manifest]:
    metadata = {"name": page.metadata.name}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": page.spec.text}}
"""


@pytest.mark.long
@pytest.mark.parametrize("stopped", ["database", "nats", "api"])
async def test_what_was_missed_is_made_soon_after_a_server_is_back(
    private_control_plane: ControlPlane,
    private_postgres: PostgresServer,
    nats_server: NatsServer,
    tmp_path: Path,
    stopped: str,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    api = private_control_plane.admin
    await api.create_crd(group="example.com", plural="pages", kind="Page", has_status=False)
    page = {"apiVersion": "example.com/v1", "kind": "Page", "metadata": {"name": "hello"}, "spec": {"text": "hello"}}
    await api.apply("/apis/example.com/v1/namespaces/default/pages", page)
    (tmp_path / "pages.py").write_text(OPERATOR)
    levelog = Levelog(tmp_path, private_control_plane.kubeconfig)
    database = private_postgres.url_of(await private_postgres.create_database())
    levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": database}
    assert (await levelog.ends("migrate")).status == 0
    processes = [levelog.start(part, "pages.py") for part in ("ingest", "process", "actuate")]
    server = {"database": private_postgres, "nats": nats_server, "api": private_control_plane}[stopped]

    async def change() -> None:
        await api.request("DELETE", GREETING)
        await api.request("PATCH", PAGE, {"spec": {"text": "hello again"}}, content_type=MERGE_PATCH)

    async def is_made() -> bool:
        found = (await api.request("GET", GREETING))[1]
        return bool(found.get("data") == {"text": "hello again"})

    async def is_in_sync() -> bool:
        return [level["status"] for level in await levelog.levels()] == ["in_sync"]

    try:
        await levelog.in_sync()
        before = [len(process.log.read_text().splitlines()) for process in processes]
        server.kill()
        if server is not private_control_plane:
            await change()
        await asyncio.sleep(AWAY_SECONDS)
        await server.start()
        back_at = asyncio.get_running_loop().time()
        if server is private_control_plane:
            await change()
        await until(is_made, "the ConfigMap that was deleted, as it should be now", seconds=MOST_SECONDS)
        took = asyncio.get_running_loop().time() - back_at
        said = f"seconds from {stopped} being back after {AWAY_SECONDS} s to the ConfigMap that was missing"
        print(f"{said}: {took:.1f}")
        record_testsuite_property(said, round(took, 1))
        await until(is_in_sync, "a level in sync")
        for process, known in zip(processes, before, strict=True):
            process.check()
            lines = process.log.read_text().splitlines()[known:]
            about_it = [line for line in lines if '"intent"' not in line and '"object"' not in line]
            assert len(about_it) <= MOST_LINES, "\n".join(about_it)
    finally:
        for process in processes:
            process.kill()
