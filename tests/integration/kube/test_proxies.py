import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import yaml

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_kube.client import connect
from levelog_kube.sessions import environment_proxy
from levelog_sandbox import Sandbox
from rigs.controlplane import ControlPlane
from rigs.kubeconfig import write_kubeconfig
from rigs.ports import free_port


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[str]:
    """A server that answers for any host, as a proxy does."""
    async with Sandbox(names=["cluster.invalid"]) as sandbox:
        yield sandbox.url


async def test_a_proxy_that_the_environment_names_is_asked(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", url="http://cluster.invalid", user="u", token="t")
    for named in (proxy, proxy.removeprefix("http://")):
        monkeypatch.setenv("HTTP_PROXY", named)
        monkeypatch.setenv("http_proxy", named)
        async with await connect(path) as client:
            assert (await client.request("GET", "/version")).status == 200


async def test_a_proxy_of_the_kubeconfig_hides_one_of_the_environment(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", url="http://cluster.invalid", user="u", token="t")
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = proxy
    path.write_text(yaml.safe_dump(content))
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "socks5://cannot.be.asked")
    async with await connect(path) as client:
        assert (await client.request("GET", "/version")).status == 200


async def test_a_host_that_the_environment_excepts_is_asked_itself(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", url="http://cluster.invalid", user="u", token="t")
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, ".invalid")
    with pytest.raises(Unavailable, match=r"http://cluster\.invalid cannot be reached"):
        await connect(path)


@asynccontextmanager
async def tunnels(*, password: str = "") -> AsyncGenerator[tuple[str, list[str]]]:
    """A proxy that answers CONNECT, to whom knows the password of the user `me`; its address, and what was asked."""
    asked: list[str] = []
    wanted = f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split()[1]
        asked.append(target)
        if password and f"Proxy-Authorization: {wanted}" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


def with_proxy(cluster: ControlPlane, folder: Path, proxy: str) -> Path:
    """The administrator's kubeconfig, with a proxy."""
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = proxy
    file = folder / "proxied"
    file.write_text(yaml.safe_dump(content))
    return file


async def test_a_proxy_of_the_kubeconfig_is_asked_for_a_tunnel(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with tunnels(password="t0ps3cret") as (address, asked):
        file = with_proxy(control_plane, tmp_path, f"http://me:t0ps3cret@{address}")
        async with await connect(file) as client:
            assert (await client.request("GET", "/api/v1/namespaces/kube-system")).status == 200
    assert set(asked) == {urlsplit(control_plane.url).netloc}


async def test_a_proxy_that_refuses_or_is_not_there_is_named_without_its_password(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with tunnels(password="another") as (address, _):
        with pytest.raises(Unavailable, match=rf"the proxy http://{address} refused .*407 Proxy Auth") as raised:
            await connect(with_proxy(control_plane, tmp_path, f"http://me:t0ps3cret@{address}"))
        assert "t0ps3cret" not in str(raised.value)
    gone = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"the proxy http://{gone} cannot be reached: Connection refused") as raised:
        await connect(with_proxy(control_plane, tmp_path, f"http://me:t0ps3cret@{gone}"))
    assert "t0ps3cret" not in str(raised.value)


@pytest.mark.parametrize("proxy", ["socks5://me:t0ps3cret@proxy:1080", "http://", "http://me:t0ps3cret@proxy:port"])
async def test_a_proxy_that_cannot_be_asked_is_refused_with_the_setting_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    file = write_kubeconfig(tmp_path / "config", url="https://cluster.invalid", user="u", token="t")
    with monkeypatch.context() as patched:
        for name in ("HTTPS_PROXY", "https_proxy"):
            patched.setenv(name, proxy)
        with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY: .* http://HOST:PORT") as environment:
            await connect(file)
    content = yaml.safe_load(file.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = proxy
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigurationError, match=rf"kubeconfig {file}: proxy-url: .* http://HOST:PORT") as kubeconfig:
        await connect(file)
    assert "t0ps3cret" not in f"{environment.value}{kubeconfig.value}"


@pytest.mark.parametrize(
    ("host", "excepted"),
    [
        ("https://10.96.0.1:443", True),
        ("https://10.97.0.1:443", False),
        ("https://[fd00::1]:6443", True),
        ("https://cluster.example.com", True),
        ("https://example.org", False),
        ("https://127.0.0.1:6443", True),
        ("https://localhost:6443", True),
    ],
)
def test_networks_and_domains_are_excepted_as_other_kubernetes_clients_do(
    host: str, excepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("https_proxy", "http://proxy:3128"), ("no_proxy", "10.96.0.0/16, fd00::/8,.example.com")):
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.upper(), value)
    assert environment_proxy(host) == (None if excepted else "http://proxy:3128")
