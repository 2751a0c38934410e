"""Databases that are reached by TLS: who they are is looked at as the URL says, and what is wrong is said."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.engine import make_url

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_store.connect.database import Database
from rigs.certificates import Authority
from rigs.tlsfront import TlsFront


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest_asyncio.fixture
async def front(postgres_url: str, authority: Authority) -> AsyncIterator[TlsFront]:
    async with TlsFront(make_url(postgres_url).port or 5432, authority.sign("server")) as started:
        yield started


def through(front: TlsFront, postgres_url: str, **options: object) -> str:
    """The URL of the database behind the front."""
    url = make_url(postgres_url).set(host="127.0.0.1", port=front.port)
    return f"{url.render_as_string(hide_password=False)}?{urlencode(options)}"


async def answers(url: str) -> bool:
    async with await Database.open(url) as database, database.reading() as reading, database.transaction() as writing:
        told = [await connection.scalar(text("SELECT 1")) for connection in (reading, writing)]
        return told == [1, 1]


async def test_a_server_is_verified_by_the_authority_that_the_url_names(
    front: TlsFront, postgres_url: str, authority: Authority
) -> None:
    assert await answers(through(front, postgres_url, sslmode="verify-full", sslrootcert=authority.file))
    assert front.encrypted >= 2  # a connection that reads, and one that writes


async def test_a_server_of_another_authority_is_refused_with_what_to_do(
    front: TlsFront, postgres_url: str, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(ConfigurationError) as refused:
        await answers(through(front, postgres_url, sslmode="verify-full", sslrootcert=other.file))
    assert "its certificate is not trusted" in str(refused.value)
    assert str(refused.value).endswith("name the file of its authority by ?sslrootcert=FILE in the URL")
    assert front.encrypted == 0


async def test_a_server_of_another_name_is_refused_unless_only_the_authority_counts(
    postgres_url: str, authority: Authority
) -> None:
    shown = authority.sign("elsewhere", address="127.0.0.2")
    async with TlsFront(make_url(postgres_url).port or 5432, shown) as front:
        with pytest.raises(ConfigurationError, match=r"its certificate is not for this host.*sslmode=verify-ca"):
            await answers(through(front, postgres_url, sslmode="verify-full", sslrootcert=authority.file))
        assert await answers(through(front, postgres_url, sslmode="verify-ca", sslrootcert=authority.file))


async def test_a_client_shows_its_certificate_to_a_server_that_asks_for_it(
    postgres_url: str, authority: Authority
) -> None:
    own = authority.sign("levelog")
    port = make_url(postgres_url).port or 5432
    verified = {"sslmode": "verify-full", "sslrootcert": authority.file}
    async with TlsFront(port, authority.sign("server"), clients=authority.file) as front:
        assert await answers(through(front, postgres_url, **verified, sslcert=own.certificate, sslkey=own.key))
        with pytest.raises((ConfigurationError, Unavailable)):  # the server's words come too late to be read
            await answers(through(front, postgres_url, **verified))


@pytest.mark.parametrize(("option", "said"), [("sslrootcert", ""), ("sslcert", ""), ("sslcert", "no certificate")])
async def test_a_file_that_cannot_be_used_is_named(
    front: TlsFront, postgres_url: str, authority: Authority, tmp_path: Path, option: str, said: str
) -> None:
    file = tmp_path / "given.pem"
    if said:
        file.write_text(said)
    options = {"sslrootcert": authority.file, option: file}
    with pytest.raises(ConfigurationError, match=rf"{option}=.*/given\.pem"):
        await answers(through(front, postgres_url, sslmode="verify-full", **options))
