import asyncio
import gc
import os
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_kube.client import KubeClient, connect
from levelog_kube.configuration import load_configuration
from levelog_kube.discovery import cluster_uid, resolve
from levelog_kube.requestfailures import ApiError, NoAnswer, Unreachable, Withheld
from levelog_sandbox.api.urltargets import Denial
from levelog_sandbox.sandbox import Sandbox
from rigs.certificates import Authority
from rigs.controlplane import ControlPlane
from rigs.kubeconfig import write_kubeconfig
from rigs.ports import free_port

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"kubeconfig .*absent does not exist"):
        await connect(tmp_path / "absent")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigurationError, match=r"kubeconfig .*elsewhere does not exist"):
        await connect()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not: [yaml", "expected"),
        ("just text", "it is not a kubeconfig file"),
        ("apiVersion: v1\nkind: Config\n", "current-context"),
        ("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: []\nclusters: []\n", "contexts"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named_in_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {file} cannot be used: .*{why}") as raised:
        await connect(file)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
async def test_a_kubeconfig_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.touch(mode=0)
    with pytest.raises(ConfigurationError, match="cannot be read: Permission denied"):
        await connect(file)


async def test_without_any_configuration_all_places_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"~/.kube/config.*KUBECONFIG.*service account"):
        await connect()


def begin_a_watch(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Serve one client: a version, and a watch with one line; then read on, and answer nothing, until it hangs up."""
    plain, _ = listening.accept()
    serving = context.wrap_socket(plain, server_side=True)
    serving.recv(4096)
    serving.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    serving.recv(4096)
    serving.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
    with socket.socket(fileno=serving.detach()) as mute:
        mute.settimeout(10)
        while mute.recv(4096):
            pass


async def test_a_watch_that_is_left_ends_its_connection_though_the_server_does_not_answer(tmp_path: Path) -> None:
    """TLS ends with a word and an answer to it, for which Python waits 30 s, and longer than its event loop runs."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        file = write_kubeconfig(tmp_path / "config", url=url, user="me", token="none", ca_file=authority.file)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(begin_a_watch, listening, context))
            async with await connect(file) as client, client.stream("/watch") as lines:
                assert await anext(lines) == [b"{}"]


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{free_port()}"
    file = write_kubeconfig(tmp_path / "config", url=url, user="me", token="t0ps3cret")
    with pytest.raises(Unreachable, match=f"{url} cannot be reached: Connection refused") as raised:
        await connect(file)
    assert "t0ps3cret" not in str(raised.value)


async def test_the_files_of_KUBECONFIG_are_merged(  # noqa: N802  # the variable's name
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sandbox() as sandbox:
        file = sandbox.kubeconfig(tmp_path / "real")
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{file}")
        async with await connect() as client:
            assert client.server == sandbox.url


async def test_an_answer_of_several_megabytes_and_one_line_comes_whole(tmp_path: Path) -> None:
    async with Sandbox() as sandbox, await connect(sandbox.kubeconfig(tmp_path / "config")) as client:
        value = secrets.token_hex(450_000)
        body = config_map("large", value=value)
        assert (await client.request("POST", CONFIG_MAPS, body=body)).status == 201
        answer = await client.request("GET", f"{CONFIG_MAPS}/large")
        assert answer.decode(dict)["data"]["value"] == value
        lines: list[bytes] = []
        async with client.stream(CONFIG_MAPS, query={"watch": "1", "timeoutSeconds": "1"}) as stream:
            async for some in stream:
                lines += some
        assert [msgspec.json.decode(line)["object"]["data"]["value"] for line in lines] == [value]


async def test_refusals_name_the_request_and_carry_the_servers_words(tmp_path: Path) -> None:
    denials = [Denial("list", "pods")]
    async with (
        Sandbox(denials=denials) as sandbox,
        await connect(sandbox.kubeconfig(tmp_path / "config")) as client,
    ):
        with pytest.raises(ApiError) as absent:
            await client.request("GET", f"{CONFIG_MAPS}/none")
        assert (absent.value.status, absent.value.reason) == (404, "NotFound")
        assert f"GET {CONFIG_MAPS}/none" in str(absent.value)
        with pytest.raises(ApiError, match="cannot list resource") as forbidden:
            await client.request("GET", "/api/v1/pods")
        assert forbidden.value.status == 403
        await client.request("POST", CONFIG_MAPS, body=config_map("a"))
        with pytest.raises(ApiError) as conflict:
            await client.request("POST", CONFIG_MAPS, body=config_map("a"))
        assert conflict.value.reason == "AlreadyExists"


async def test_what_is_served_and_which_cluster_it_is_can_be_asked(tmp_path: Path, control_plane: ControlPlane) -> None:
    async with Sandbox() as sandbox:
        for kubeconfig in (sandbox.kubeconfig(tmp_path / "config"), control_plane.kubeconfig):
            async with await connect(kubeconfig) as client:
                pods = await resolve(client, "", "v1", "pods")
                assert pods is not None
                assert (pods.kind, pods.namespaced) == ("Pod", True)
                assert pods.collection() == "/api/v1/pods"
                assert pods.object("a", "b c") == "/api/v1/namespaces/a/pods/b%20c"
                namespaces = await resolve(client, "", "v1", "namespaces")
                assert namespaces is not None
                assert namespaces.object("", "kube-system") == "/api/v1/namespaces/kube-system"
                assert await resolve(client, "apps", "v1", "nothings") is None
                assert await resolve(client, "nobody.example.com", "v1", "things") is None
                answer = await client.request("GET", "/api/v1/namespaces/kube-system")
                assert await cluster_uid(client) == answer.decode(dict)["metadata"]["uid"]


async def test_there_may_be_more_watches_than_the_official_client_has_connections(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    async with Sandbox() as sandbox:
        for kubeconfig in (sandbox.kubeconfig(tmp_path / "config"), control_plane.kubeconfig):
            async with await connect(kubeconfig) as client, AsyncExitStack() as watches:
                for _ in range(100):
                    await watches.enter_async_context(client.stream(CONFIG_MAPS, query={"watch": "1"}))
                assert (await client.request("GET", "/version")).status == 200


async def test_silence_ends_a_stream(tmp_path: Path) -> None:
    async with Sandbox() as sandbox, await connect(sandbox.kubeconfig(tmp_path / "config")) as client:
        silence = timedelta(seconds=0.3)
        async with client.stream("/api/v1/pods", query={"watch": "1"}, silence=silence) as lines:
            with pytest.raises(NoAnswer, match="nothing arrived in time"):
                await anext(lines)


async def test_a_request_that_takes_too_long_may_have_taken_effect(tmp_path: Path) -> None:
    async with strange_server(asyncio.StreamReader.read) as url, await unchecked_client(tmp_path, url) as client:
        with pytest.raises(NoAnswer, match="nothing arrived in time"):
            await client.request("POST", "/x", body=b"{}", timeout=timedelta(seconds=0.2))


async def test_a_request_is_withheld_if_its_time_ends_while_the_connection_is_made(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def keep(reader: asyncio.StreamReader) -> None:
        received.append(await reader.read())

    async with strange_server(keep) as url, await unchecked_client(tmp_path, url) as client:
        with pytest.raises(Withheld, match="POST /x: not sent"):
            await client.request("POST", "/x", body=b"{}", may_send=lambda: False)
    assert received == [b""]  # there was a connection, and nothing came over it


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_whose_connection_breaks_is_sent_once(tmp_path: Path, method: str) -> None:
    asked = 0

    async def read_request(reader: asyncio.StreamReader) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with strange_server(read_request) as url, await unchecked_client(tmp_path, url) as client:
        with pytest.raises(NoAnswer, match=f"{method} /x"):
            await client.request(method, "/x", body=b"{}")
    assert asked == 1


async def test_credentials_that_are_refused_are_told_without_them(tmp_path: Path, control_plane: ControlPlane) -> None:
    file = write_kubeconfig(
        tmp_path / "config", url=control_plane.url, ca_file=control_plane.ca_file, user="me", token="t0ps3cret"
    )
    with pytest.raises(ConfigurationError, match="refused the credentials") as raised:
        await connect(file)
    assert "t0ps3cret" not in str(raised.value)


async def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path, control_plane: ControlPlane) -> None:
    file = write_kubeconfig(tmp_path / "config", url=control_plane.url, user="me", token=control_plane.admin_token)
    with pytest.raises(Unavailable, match=r"certificate .* is not trusted"):
        await connect(file)


@asynccontextmanager
async def strange_server(read: Callable[[asyncio.StreamReader], Awaitable[object]]) -> AsyncGenerator[str]:
    """A server that reads from each connection and then hangs up; its URL."""
    async with asyncio.TaskGroup() as connections:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read(reader)
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

        server = await asyncio.start_server(
            lambda reader, writer: connections.create_task(serve(reader, writer)), "127.0.0.1", 0
        )
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def unchecked_client(folder: Path, url: str) -> KubeClient:
    """A client of what is no API server."""
    file = write_kubeconfig(folder / "config", url=url, user="me", token="t")
    return KubeClient(file, None, await load_configuration(file))


async def test_a_connect_that_is_cancelled_leaves_no_session_open(tmp_path: Path) -> None:
    has_asked = asyncio.Event()
    left: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context["message"]))

    async def stay_silent(reader: asyncio.StreamReader) -> None:
        has_asked.set()
        await reader.read()

    async with strange_server(stay_silent) as url:
        connecting = asyncio.create_task(connect(write_kubeconfig(tmp_path / "config", url=url, user="u", token="t")))
        await asyncio.wait_for(has_asked.wait(), 60)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    gc.collect()
    assert left == []
