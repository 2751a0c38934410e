from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from levelog.errors import Unavailable
from levelog_kube.client import connect
from levelog_sandbox import Sandbox
from rigs.kubeconfig import write_kubeconfig


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[str]:
    """A server that answers for any host, as a proxy does."""
    async with Sandbox() as sandbox:
        yield sandbox.url


async def test_a_proxy_that_the_environment_names_is_asked(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", url="http://cluster.invalid", user="u", token="t")
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
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
