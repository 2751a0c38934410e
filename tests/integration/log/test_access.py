"""Signing in to NATS, and TLS; nothing of it is shown, and what is refused is said in one sentence."""

import asyncio
import inspect
import json
import shutil
import socket
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock, patch
from urllib.parse import quote

import pytest

from levelog_base.errors import ConfigurationError, LevelogError, Unavailable
from levelog_base.wire.objects import Application, Cluster
from levelog_log.notifications import Notifier
from levelog_log.stream import ensure_stream
from levelog_log.transport.access import NatsAccess
from levelog_log.transport.connection import Connection, connect
from levelog_log.transport.nkeys import Nkey
from levelog_log.transport.wire import NatsClient
from rigs.certificates import Authority, Certified
from rigs.hangups import end_by_reset
from rigs.nats import NatsServer
from rigs.natsusers import Accounts, new_seed
from rigs.ports import free_port
from rigs.waiting import until

LONG = timedelta(seconds=30)
BIND = "127.0.0.1"


def tls(certified: Certified, *, clients: Authority | None = None) -> str:
    """The server's setting; with `clients`, those that it signed are asked for."""
    asked = f"ca_file: {json.dumps(str(clients.file))}, verify: true" if clients else ""
    return (
        f"tls {{ cert_file: {json.dumps(str(certified.certificate))}, "
        f"key_file: {json.dumps(str(certified.key))}, {asked} }}"
    )


async def refusal(url: str, access: NatsAccess | None = None) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await connect(url, access=access, timeout=LONG)
    return str(raised.value)


async def test_a_server_with_tls_and_a_ca_of_its_own(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with NatsServer(settings=tls(authority.sign("server"))) as server:
        url = server.url.replace("nats:", "tls:")
        async with await connect(url, access=NatsAccess(ca_file=authority.file), timeout=LONG) as connection:
            assert (await ensure_stream(connection, Cluster("c"))).partitions == 16
        for access in (NatsAccess(), NatsAccess(ca_file=other.file)):
            said = await refusal(url, access)
            assert said.startswith(f"NATS at {url} cannot be used: the server's certificate is not trusted: ")
            assert said.endswith("the CA that signed it is given with --nats-ca-file")


async def test_a_certificate_that_has_expired_or_is_anothers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    access = NatsAccess(ca_file=authority.file)
    expired = authority.sign("expired", valid=timedelta(hours=-1))
    async with NatsServer(settings=tls(expired)) as server:
        assert "not trusted: certificate has expired" in await refusal(server.url, access)
    async with NatsServer(settings=tls(authority.sign("elsewhere", address="192.0.2.1"))) as server:
        assert "not trusted: IP address mismatch, certificate is not valid for '127.0.0.1'" in await refusal(
            server.url, access
        )


async def test_a_server_that_asks_for_a_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    mine, foreign = authority.sign("client"), other.sign("foreign")
    async with NatsServer(settings=tls(authority.sign("server"), clients=authority)) as server:
        access = NatsAccess(ca_file=authority.file, cert_file=mine.certificate, key_file=mine.key)
        async with await connect(server.url, access=access, timeout=LONG) as connection:
            assert connection.is_connected
        assert "--nats-cert-file" in await refusal(server.url, NatsAccess(ca_file=authority.file))
        access = NatsAccess(ca_file=authority.file, cert_file=foreign.certificate, key_file=foreign.key)
        assert "--nats-cert-file" in await refusal(server.url, access)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), BrokenPipeError(32, "Broken pipe")])
async def test_a_refusal_is_told_though_the_end_of_the_connection_overtook_it_once(
    tmp_path: Path, error: OSError
) -> None:
    authority = Authority(tmp_path)
    real, ended = inspect.getattr_static(NatsClient, "_process_connect_init"), [error]

    async def overtaken(client: NatsClient) -> None:
        if ended:
            raise ended.pop()
        await real(client)

    async with NatsServer(settings=tls(authority.sign("server"), clients=authority)) as server:
        with patch.object(NatsClient, "_process_connect_init", overtaken):
            assert "--nats-cert-file" in await refusal(server.url, NatsAccess(ca_file=authority.file))
    assert not ended


async def test_nothing_is_said_to_a_server_that_offers_no_tls(tmp_path: Path) -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","headers":true,"max_payload":1048576}\r\n')
        heard.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, BIND, 0) as server:
        port = server.sockets[0].getsockname()[1]
        for scheme, access in (("tls", NatsAccess()), ("nats", NatsAccess(ca_file=Authority(tmp_path).file))):
            with pytest.raises(LevelogError, match="TLS is asked for, and the server does not offer it"):
                await connect(f"{scheme}://me:hunter2@{BIND}:{port}", access=access, timeout=LONG)
    assert heard == b""


@pytest.mark.parametrize("content", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
async def test_files_that_hold_no_certificate_are_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file.pem"
    url = f"nats://{BIND}:{free_port()}"
    assert "cannot be read: No such file" in await refusal(url, NatsAccess(ca_file=file))
    file.write_text(content)
    assert f"{file} (--nats-ca-file) cannot be used for TLS" in await refusal(url, NatsAccess(ca_file=file))
    said = await refusal(url, NatsAccess(cert_file=file, key_file=file))
    assert f"{file} and {file} (--nats-cert-file and --nats-key-file) cannot be used for TLS" in said
    assert "give --nats-cert-file and --nats-key-file" in await refusal(url, NatsAccess(cert_file=file))


async def test_an_nkey(tmp_path: Path) -> None:
    mine, foreign = tmp_path / "mine.nk", tmp_path / "foreign.nk"
    mine.write_text(f"{new_seed()}\n")
    foreign.write_text(new_seed())
    public = Nkey.from_seed(mine.read_text().strip()).public
    async with NatsServer(settings=f"authorization {{ users: [ {{ nkey: {public} }} ] }}") as server:
        async with await connect(server.url, access=NatsAccess(nkey_file=mine), timeout=LONG) as connection:
            assert connection.is_connected
        said = await refusal(server.url, NatsAccess(nkey_file=foreign))
        assert said == f"NATS at {server.url} refused the credentials: 'Authorization Violation'"


async def test_credentials_are_read_again_when_they_have_expired(tmp_path: Path) -> None:
    accounts = Accounts()
    async with NatsServer(settings=accounts.settings) as server:
        file = accounts.write_credentials(tmp_path / "user.creds", seconds=8)
        async with await connect(server.url, access=NatsAccess(credentials_file=file), timeout=LONG) as connection:
            await ensure_stream(connection, Cluster("c"))
            accounts.write_credentials(file)
            await until(
                lambda: connection.reconnects == 1 and connection.is_connected, "a connection by the new credentials"
            )
            await ensure_stream(connection, Cluster("c"))
        said = await refusal(server.url, NatsAccess(credentials_file=Accounts().write_credentials(file)))
        assert "refused the credentials" in said


async def test_credentials_that_have_expired_end_what_waits(tmp_path: Path) -> None:
    accounts = Accounts()
    async with NatsServer(settings=accounts.settings) as server:
        access = NatsAccess(credentials_file=accounts.write_credentials(tmp_path / "user.creds", seconds=8))
        async with await connect(server.url, access=access, timeout=LONG) as connection:
            await refused(connection, "refused the credentials")
            with pytest.raises(ConfigurationError, match="refused the credentials"):
                await connection.request("$JS.API.INFO")


async def refused(connection: Connection, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        async with asyncio.timeout(LONG.total_seconds()):
            await connection.until_refused()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it needs a block NATS USER JWT"),
        (
            "-----BEGIN USER NKEY SEED-----\nSUABCDEF\n------END USER NKEY SEED------\n",
            "it needs a block NATS USER JWT",
        ),
        ("\xff", "it is no text"),
    ],
)
async def test_files_that_hold_no_key_are_named_and_not_quoted(tmp_path: Path, content: str, why: str) -> None:
    file, url = tmp_path / "file", f"nats://{BIND}:{free_port()}"
    assert f"{file} (--nats-credentials) cannot be read" in await refusal(url, NatsAccess(credentials_file=file))
    file.write_bytes(content.encode("latin-1"))
    assert f"{file} (--nats-credentials) cannot be used: {why}" in await refusal(url, NatsAccess(credentials_file=file))
    seed = new_seed()
    for broken in (seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:], seed[:20], "SUABC!"):
        file.write_text(broken)
        said = await refusal(url, NatsAccess(nkey_file=file))
        assert f"{file} (--nats-nkey-file) cannot be used: it" in said
        assert broken not in said


async def test_one_way_to_sign_in_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "user.nk"
    file.write_text(new_seed())
    said = await refusal(f"nats://me:hunter2@{BIND}:1", NatsAccess(nkey_file=file))
    assert (
        said == "there are several ways to sign in to NATS, --nats-nkey-file and user or token in --nats-url: give one"
    )
    assert "several users" in await refusal(f"nats://a:b@{BIND}:1,nats://c:d@{BIND}:2")


@pytest.mark.parametrize("password", ["p@ss", "pa/ss", "a,b", "50%", "?#"])
async def test_any_password_can_be_in_a_url(password: str) -> None:
    users = json.dumps([{"user": "me", "password": password}])
    async with NatsServer(settings=f"authorization {{ users: {users} }}") as server:
        url = server.url.replace("//", f"//me:{quote(password, safe='')}@")
        async with await connect(url, timeout=LONG) as connection:
            assert connection.url == server.url
        wrong = url.replace("@127", "hunter2@127")
        assert await refusal(wrong) == f"NATS at {server.url} refused the credentials: 'Authorization Violation'"


@pytest.mark.parametrize("password", ["p@hunter2", "pa/hunter2", "a,hunter2", "?hunter2", "#hunter2", "a:hunter2"])
async def test_a_password_that_is_not_encoded_is_not_shown(password: str) -> None:
    with pytest.raises(LevelogError) as raised:
        await connect(f"nats://me:{password}@{BIND}:{free_port()},nats://me:{password}@{BIND}:1", timeout=LONG)
    assert "hunter2" not in str(raised.value)


async def test_a_subject_that_may_not_be_used_is_named_with_what_is_missing() -> None:
    permissions = (
        "{ publish: { deny: ['levelog.>', '$JS.API.STREAM.CREATE.>'] }, subscribe: { deny: 'levelog-notify.>' } }"
    )
    users = f"authorization {{ users: [ {{ user: me, password: x, permissions: {permissions} }} ] }}"
    async with NatsServer(settings=users) as server:
        url = server.url.replace("//", "//me:x@")
        cluster = Cluster("c")
        async with await connect(url, timeout=LONG) as connection:
            with pytest.raises(ConfigurationError) as raised:
                await ensure_stream(connection, cluster)
            what = "this user may not publish to $JS.API.STREAM.CREATE.levelog-c: give it that permission"
            assert str(raised.value) == f"NATS at {server.url} refused a subject, {what}"
        async with await connect(url, timeout=LONG) as connection:
            await connection.subscribe("levelog-notify.c.Shop.*", AsyncMock())
            await refused(connection, r"may not subscribe to levelog-notify\.c\.Shop\.\*: give it")
        async with await connect(url, timeout=LONG) as connection:
            with pytest.raises(ConfigurationError, match=r"may not subscribe to levelog-notify\.c\.Shop\.\*: give it"):
                await Notifier(connection, cluster, Application("Shop")).__aenter__()


async def test_a_connection_that_the_server_closes_for_good_ends_what_waits() -> None:
    async with NatsServer(settings="max_control_line: 512") as server, await connect(server.url) as connection:
        await connection.client.publish("a" * 1000)
        with pytest.raises(Unavailable, match="closed the connection for good: maximum control line exceeded"):
            await connection.until_refused()


async def test_a_connection_that_is_reset_while_it_is_closed_is_closed() -> None:
    tasks = asyncio.all_tasks()
    with socket.create_server((BIND, 0)) as listener:
        listener.setblocking(False)
        serving = asyncio.create_task(greet(listener))
        client = NatsClient()
        await client.connect(f"nats://{BIND}:{listener.getsockname()[1]}")
        await client.subscribe("answers", cb=AsyncMock())
        peer = await serving
        await client.publish("questions")
        end_by_reset(peer)
        peer.close()
        await client.close()
    assert client.is_closed
    async with asyncio.timeout(LONG.total_seconds()):
        await asyncio.gather(*asyncio.all_tasks() - tasks, return_exceptions=True)  # cancelled, all of them


async def greet(listener: socket.socket) -> socket.socket:
    """What a server says first; the connection that it has then."""
    loop = asyncio.get_running_loop()
    peer, _ = await loop.sock_accept(listener)
    await loop.sock_sendall(peer, b'INFO {"server_id":"x","version":"2.12.0","headers":true,"max_payload":1048576}\r\n')
    while b"PING" not in await loop.sock_recv(peer, 4096):
        pass
    await loop.sock_sendall(peer, b"PONG\r\n")
    return peer


async def test_certificates_that_were_replaced_are_used(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    served, trusted = tmp_path / "served.pem", tmp_path / "trusted.pem"
    shutil.copy(old.file, trusted)
    certified = Certified(served, tmp_path / "served.key")

    def serve(signed: Certified) -> None:
        shutil.copy(signed.certificate, certified.certificate)
        shutil.copy(signed.key, certified.key)

    serve(old.sign("first"))
    async with (
        NatsServer(settings=tls(certified)) as server,
        await connect(server.url, access=NatsAccess(ca_file=trusted), timeout=LONG) as connection,
    ):
        serve(new.sign("second"))
        shutil.copy(new.file, trusted)
        server.kill()
        await server.start()
        await until(
            lambda: connection.reconnects == 1 and connection.is_connected, "a connection by the new certificate"
        )
