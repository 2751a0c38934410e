"""Credentials and certificates that are replaced while the client runs, and those that cannot be used."""

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio
import yaml
from aiohttp import ClientSession, web

from levelog_base.errors import ConfigurationError
from levelog_base.wire.canonical import digest
from levelog_kube import client as client_module
from levelog_kube import configuration
from levelog_kube.client import connect
from levelog_kube.official import Configuration
from levelog_kube.requestfailures import ApiError, Unreachable
from levelog_kube.sessions import open_session
from rigs.certificates import Authority, Certified
from rigs.ports import free_port


class PickyServer:
    """Answers 401 unless `accepts(token, common name of the client's certificate)`, else 200.

    `/watch` streams a line for each `tell()`. `serve` changes certificate and authority, and breaks all connections.
    """

    def __init__(self, certified: Certified, *, clients: Authority | None = None) -> None:
        self.accepts: Callable[[str, str], bool] = lambda _token, _name: True
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._certified, self._clients = certified, clients
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.serve(self._certified)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def serve(self, certified: Certified) -> None:
        """Go on with another certificate, on the same port."""
        await self._stop()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certified.certificate, certified.key)
        if self._clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(self._clients.file)
        application = web.Application()
        application.router.add_get("/watch", self._watch)
        application.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context, reuse_address=True).start()

    def tell(self, line: bytes) -> None:
        """Send a line to who watches."""
        self._lines.put_nowait(line + b"\n")

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _is_accepted(self, request: web.Request) -> bool:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        names = [value for pair in (certificate or {}).get("subject", ()) for key, value in pair if key == "commonName"]
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self.accepts(token, names[0] if names else "")

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response({}, status=200 if self._is_accepted(request) else 401)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if not self._is_accepted(request):
            return web.json_response({}, status=401)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self._lines.get())


SECRET = "t0ps3cret"


@pytest.fixture(autouse=True)
def always_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_CREDENTIALS_AGE_SECONDS", 0.0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest_asyncio.fixture
async def server(authority: Authority) -> AsyncIterator[PickyServer]:
    async with PickyServer(authority.sign("server"), clients=authority) as started:
        yield started


@pytest.fixture
def write(tmp_path: Path, server: PickyServer, authority: Authority) -> Callable[..., Path]:
    """Writes a kubeconfig of one user."""

    def kubeconfig(user: dict[str, Any], **cluster: Any) -> Path:
        given = {"server": server.url, "certificate-authority": str(authority.file), **cluster}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": given}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(content))
        return file

    return kubeconfig


@pytest.fixture
def held(tmp_path: Path) -> Certified:
    """Where the certificate of a client is."""
    return Certified(tmp_path / "client.crt", tmp_path / "client.key")


def of_client(held: Certified) -> dict[str, Any]:
    """The user of a kubeconfig who shows that."""
    return {"client-certificate": str(held.certificate), "client-key": str(held.key)}


def exec_plugin(folder: Path, script: str) -> dict[str, Any]:
    """The user of a kubeconfig whose credentials a script prints."""
    plugin = folder / f"plugin-{digest(script)}"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize("is_inline", [True, False])
async def test_a_token_is_read_again_while_a_watch_goes_on(
    server: PickyServer, write: Callable[..., Path], tmp_path: Path, is_inline: bool
) -> None:
    def give(token: str) -> Path:
        """In the kubeconfig, or in a file that it names."""
        file = tmp_path / "token"
        file.write_text(f"{token}\n")  # as editors and `echo` leave it
        return write({"token": token} if is_inline else {"tokenFile": str(file)})

    server.accepts = lambda token, _: token == "one"
    async with (
        await connect(give("one")) as client,
        client.stream("/watch") as lines,
    ):
        server.tell(b"before")
        assert await anext(lines) == [b"before"]
        server.accepts = lambda token, _: token == "two"
        with pytest.raises(ApiError, match="401"):
            await client.request("POST", "/write", body=b"{}")
        give("two")
        for _ in range(3):
            assert (await client.request("POST", "/write", body=b"{}")).status == 200
        server.tell(b"after")
        assert await anext(lines) == [b"after"]


async def test_an_exec_plugin_is_run_again_when_its_token_has_expired(
    server: PickyServer, write: Callable[..., Path], tmp_path: Path
) -> None:
    printed = tmp_path / "printed"
    printed.write_text(credential(token="one", expirationTimestamp="2020-01-01T00:00:00Z"))
    server.accepts = lambda token, _: token == "one"
    async with await connect(write(exec_plugin(tmp_path, f"cat {printed}"))) as client:
        printed.write_text(credential(token="two"))
        server.accepts = lambda token, _: token == "two"
        assert (await client.request("GET", "/x")).status == 200


async def test_a_client_certificate_is_read_again_when_it_is_refused(
    server: PickyServer, write: Callable[..., Path], authority: Authority, held: Certified
) -> None:
    install(authority.sign("one"), held)
    server.accepts = lambda _, name: name == "one"
    async with await connect(write(of_client(held))) as client:
        install(authority.sign("two"), held)
        server.accepts = lambda _, name: name == "two"
        for _ in range(3):
            assert (await client.request("GET", "/x")).status == 200


async def test_replaced_certificates_leave_no_more_than_one_session_behind(
    server: PickyServer,
    write: Callable[..., Path],
    authority: Authority,
    held: Certified,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[ClientSession] = []

    def open_counted(official: Configuration) -> ClientSession:
        opened.append(open_session(official))
        return opened[-1]

    monkeypatch.setattr(client_module, "open_session", open_counted)
    install(authority.sign("one"), held)
    async with await connect(write(of_client(held))) as client:
        for accepted in ("two", "three", "four", "five"):
            install(authority.sign(accepted), held)
            server.accepts = lambda _, name, accepted=accepted: name == accepted  # type: ignore[misc]
            assert (await client.request("GET", "/x")).status == 200
        assert [each.closed for each in opened] == [True, True, True, False, False]
    assert all(each.closed for each in opened)


async def test_a_watch_goes_on_however_often_the_certificate_is_replaced(
    server: PickyServer, write: Callable[..., Path], authority: Authority, held: Certified
) -> None:
    install(authority.sign("one"), held)
    async with await connect(write(of_client(held))) as client, client.stream("/watch") as lines, asyncio.timeout(30):
        server.tell(b"first")
        assert await anext(lines) == [b"first"]
        for accepted in ("two", "three", "four"):
            install(authority.sign(accepted), held)
            server.accepts = lambda _, name, accepted=accepted: name == accepted  # type: ignore[misc]
            assert (await client.request("GET", "/x")).status == 200
        server.tell(b"second")
        assert await anext(lines) == [b"second"]


async def test_another_authority_is_read_when_the_server_has_a_certificate_of_it(
    server: PickyServer, write: Callable[..., Path], authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    async with await connect(write({"token": "t"})) as client:
        await server.serve(other.sign("server"))
        with pytest.raises(Unreachable, match=r"certificate of https://127.0.0.1:\d+ is not trusted"):
            await client.request("GET", "/x")
        authority.file.write_bytes(other.file.read_bytes())
        assert (await client.request("GET", "/x")).status == 200


@pytest.mark.parametrize("is_checked", [True, False])
async def test_a_certificate_that_is_not_checked_is_warned_of(
    write: Callable[..., Path], caplog: pytest.LogCaptureFixture, *, is_checked: bool
) -> None:
    given: dict[str, Any] = {} if is_checked else {"insecure-skip-tls-verify": True}
    async with await connect(write({"token": "t"}, **given)):
        told = [each.getMessage() for each in caplog.records if "is not checked" in each.getMessage()]
        assert bool(told) is not is_checked


async def test_files_that_are_half_replaced_are_tried_again(
    server: PickyServer, write: Callable[..., Path], authority: Authority, tmp_path: Path, held: Certified
) -> None:
    install(authority.sign("one"), held)
    async with await connect(write(of_client(held))) as client:
        server.accepts = lambda _, name: name == "two"
        new = authority.sign("two")
        held.certificate.write_bytes(new.certificate.read_bytes())
        with pytest.raises(Unreachable, match=r"client certificate .*client.crt and its key .* cannot be used"):
            await client.request("GET", "/x")
        install(new, held)
        assert (await client.request("GET", "/x")).status == 200


@pytest.fixture
def pod(server: PickyServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service account, in an environment as that of a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(authority.file.read_bytes())
    (folder / "token").write_text("one")
    monkeypatch.setattr(configuration, "FOLDER", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return folder


async def test_the_token_of_a_pod_is_used_before_the_old_one_is_refused(
    server: PickyServer, pod: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def accepts(token: str, _name: str) -> bool:
        asked.append(token)
        return True

    server.accepts = accepts
    monkeypatch.setattr(configuration, "_FRESH_SECONDS", 0.0)
    async with await connect() as client:
        (pod / "token").write_text("two\n")
        await client.request("GET", "/x")
        (pod / "token").unlink()
        await client.request("GET", "/x")
    assert asked == ["one", "two", "two"]
    assert f"{pod}/token cannot be read (No such file or directory)" in caplog.text


async def test_the_token_of_a_pod_is_read_again_when_it_is_refused(server: PickyServer, pod: Path) -> None:
    server.accepts = lambda token, _: token == "one"
    async with await connect() as client:
        (pod / "token").write_text("two")
        server.accepts = lambda token, _: token == "two"
        assert (await client.request("GET", "/x")).status == 200


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("token", None, r"token .*/token cannot be read .*automountServiceAccountToken"),
        ("token", "\n", r"token .*/token is empty"),
        ("ca.crt", None, r"certificate authority: .*/ca.crt does not exist"),
        ("ca.crt", "junk", r"certificate authority .*/ca.crt cannot be used .*PEM"),
    ],
)
async def test_what_is_wrong_in_a_pod_is_named(pod: Path, file: str, content: str | None, said: str) -> None:
    (pod / file).unlink()
    if content is not None:
        (pod / file).write_text(content)
    with pytest.raises(ConfigurationError, match=said):
        await connect()


async def test_what_is_wrong_in_a_kubeconfig_is_named_without_secrets(
    write: Callable[..., Path], authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = authority.sign("one"), authority.sign("two")
    junk = tmp_path / "junk.pem"
    junk.write_text(SECRET)
    pair = {"client-certificate": str(mine.certificate)}
    for user, cluster, said in (
        ({"tokenFile": "nowhere"}, {}, r"kubeconfig .*: .*No such file .*nowhere"),
        ({"token": f"{SECRET}\n{SECRET}"}, {}, r"kubeconfig .*: its token has line breaks"),
        ({"token": SECRET}, {"certificate-authority": "nowhere.pem"}, r"kubeconfig .*nowhere.pem"),
        ({"token": SECRET}, {"certificate-authority": str(junk)}, r"certificate authority .*junk.pem cannot be used"),
        ({**pair, "client-key": "nowhere.key"}, {}, r"kubeconfig .*nowhere.key"),
        ({**pair, "client-key": str(junk)}, {}, r"client certificate .* its key .*junk.pem cannot be used"),
        ({**pair, "client-key": str(other.key)}, {}, r"the key that of the certificate"),
        ({"exec": {"command": "no-such-plugin", "apiVersion": "v1"}}, {}, r"kubeconfig .*no-such-plugin"),
        (exec_plugin(tmp_path, "echo log in first >&2; exit 3"), {}, r"kubeconfig .*returned 3. log in first"),
        (exec_plugin(tmp_path, f"echo {SECRET}"), {}, r"kubeconfig .*exec: failed to decode process output"),
        (exec_plugin(tmp_path, f"echo '{credential(username=SECRET)}'"), {}, r"kubeconfig .*exec: missing token or"),
    ):
        with pytest.raises(ConfigurationError, match=said) as raised:
            await connect(write(user, **cluster))
        assert SECRET not in str(raised.value)
    assert SECRET not in caplog.text


def install(new: Certified, held: Certified) -> None:
    held.certificate.write_bytes(new.certificate.read_bytes())
    held.key.write_bytes(new.key.read_bytes())
