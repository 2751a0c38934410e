"""`/healthz` and `/readyz` of real processes: what is paused, stopped or blocked is told by its name."""

import os
import re
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from levelog_base.errors import ConfigurationError
from levelog_cli.monitoring import listening as listening_module
from levelog_cli.monitoring.listening import MOST_CLIENTS, ListenAddress, WebPage, listening
from levelog_sandbox import Sandbox
from rigs.kubeconfig import write_kubeconfig
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.nats import NatsServer
from rigs.probing import ANYWHERE, Listener
from rigs.tcpproxy import TcpProxy

BLOCKING: Final = """
from levelog import Intent, Level, Operator, Resource, Struct

op = Operator("blocking")

class WebSpec(Struct):
    replicas: int = 1

class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec

@op.view
def pods(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=0)

@op.reconcile(pods)
async def converge(web: Web) -> list[Intent]:
    with open("gate"):  # returns when somebody opens it to write
        pass
    return []
"""


@pytest.mark.parametrize(
    ("server", "name"),
    [
        pytest.param("nats", "NATS at nats://", marks=pytest.mark.long),
        ("database", "database "),
        pytest.param("api", "API server at http://", marks=pytest.mark.long),
    ],
)
async def test_a_server_that_is_silent_or_away_is_named_until_it_is_back(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path, server: str, name: str
) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        urls = {"nats": nats_server.url, "database": postgres_url, "api": sandbox.url}
        async with TcpProxy(urlsplit(urls[server]).port or 5432) as door:
            urls[server] = door.url(urls[server])
            config = write_kubeconfig(tmp_path / "kubeconfig", url=urls["api"], user="levelog", token="none")
            levelog = Levelog(tmp_path, config)
            levelog.env |= {"LEVELOG_NATS_URL": urls["nats"], "LEVELOG_DATABASE_URL": urls["database"]}
            assert (await levelog.ends("migrate")).status == 0
            with levelog.start("run", WEBS_FILE, *ANYWHERE) as running:
                listener = await Listener.of(running)
                ready = await listener.is_ready()
                assert [line for line in ready.text.splitlines() if name in line], ready.text
                door.pause()
                told = await listener.says("/readyz", 503, f"[-]{name}")
                assert "readyz check failed" in told.text
                assert (await listener.asks("/healthz")).status == 200  # a restart would not mend that
                door.resume()
                await listener.is_ready()
                door.refuse()
                door.cut()
                await listener.says("/readyz", 503, f"[-]{name}")
                await door.accept()
                await listener.is_ready()
                assert await running.stops() == 0


async def test_each_process_is_ready_once_its_role_can_be_done(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
        processes = [levelog.start("process", WEBS_FILE, *ANYWHERE), levelog.start("actuate", WEBS_FILE, *ANYWHERE)]
        try:
            for role, process in zip(("process", "actuate"), processes, strict=True):
                told = await (await Listener.of(process)).says("/readyz", 503, f"[-]{role} failed: has not begun")
                assert "[+]event loop ok" in told.text
            processes.append(levelog.start("ingest", WEBS_FILE, *ANYWHERE))
            leading = await Listener.of(processes[-1])
            await leading.says("/readyz", 503, "[-]ingest failed: webs.example.com: waits for webs.example.com: ")
            processes.append(levelog.start("ingest", WEBS_FILE, *ANYWHERE))
            standing_by = await Listener.of(processes[-1])
            await standing_by.is_ready()
            assert (await leading.asks("/readyz")).status == 503
            await define_webs(sandbox)
            for process in processes:
                await (await Listener.of(process)).is_ready()
            assert [await process.stops() for process in processes] == [0, 0, 0, 0]
            assert not levelog.data.exists()
        finally:
            for process in processes:
                process.kill()


async def test_a_blocked_event_loop_is_told_by_both_probes_with_the_line_that_blocks_it(tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    os.mkfifo(tmp_path / "gate")
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        with levelog.start("run", "blocking.py", *ANYWHERE) as running:
            listener = await Listener.of(running)
            await listener.is_ready()
            assert (await listener.asks("/healthz")).text == "[+]event loop ok\nhealthz check passed\n"
            sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
            told = await listener.says("/healthz", 503, "[-]event loop failed: blocked for ")
            assert "/blocking.py:" in told.text
            assert " converge\n" in told.text
            assert (await listener.asks("/readyz")).text.splitlines()[1:] == ["readyz check failed"]


@pytest.mark.parametrize(
    "text",
    ["8080", "host:", "host:http", "127.0.0.1:65536", "http://host:80", "::1:80", "a:²", f"a:{'9' * 5000}"],
    ids=lambda text: text[:20],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    says = f"--listen {text}: give HOST:PORT, as in 127.0.0.1:8080, [::1]:8080 or :8080 for all addresses"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(says)}$"):
        ListenAddress.parse(text)


async def test_a_port_that_is_taken_or_a_host_that_is_not_here_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = await Levelog(tmp_path).refused("run", WEBS_FILE, "--listen", address, status=2)
    assert sentence == f"--listen: the process cannot listen at {address}: Address already in use"
    sentence = await Levelog(tmp_path).refused("run", WEBS_FILE, "--listen", "192.0.2.1:8080", status=2)
    assert sentence.startswith("--listen: the process cannot listen at 192.0.2.1:8080: ")


@pytest.mark.parametrize(("text", "reached"), [(":0", "127.0.0.1"), (":0", "::1"), ("[::1]:0", "::1")])
def test_all_addresses_are_those_of_both_protocols(text: str, reached: str) -> None:
    if ":" in reached and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with listening(ListenAddress.parse(text), {}) as found, socket.create_connection((reached, found.port), 10):
        pass


def test_the_log_has_a_url_also_where_it_listens_at_all_addresses(caplog: pytest.LogCaptureFixture) -> None:
    pages = {"/healthz": lambda _: WebPage(b"ok")}
    with caplog.at_level("INFO"), listening(ListenAddress.parse(":0"), pages):
        url = caplog.messages[-1].partition(" at ")[2].partition(" for ")[0]
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            assert answer.read() == b"ok"


def test_clients_that_say_nothing_take_no_place_from_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "CLIENT_SECONDS", 60.0)
    pages = {"/healthz": lambda _: WebPage(b"ok")}
    with listening(ListenAddress.parse("127.0.0.1:0"), pages) as found, ExitStack() as stack:
        place = "127.0.0.1", found.port
        silent = [stack.enter_context(socket.create_connection(place, 10)) for _ in range(2 * MOST_CLIENTS)]
        with urllib.request.urlopen(f"http://127.0.0.1:{found.port}/healthz", timeout=10) as answer:
            assert answer.read() == b"ok"
        assert {each.recv(1) for each in silent[:MOST_CLIENTS]} == {b""}, "the oldest are cut off"
