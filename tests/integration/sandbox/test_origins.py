"""Whoever reaches the sandbox is its administrator, so it answers no page that somebody has open in a browser."""

import aiohttp
import pytest

from levelog_sandbox import Sandbox

NAMESPACES = "/api/v1/namespaces"
NAMESPACE = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}'
JSON = {"Content-Type": "application/json"}


async def ask(sandbox: Sandbox, headers: dict[str, str], body: bytes | None = None) -> int:
    """The status of a read, or of a creation."""
    async with aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session:
        method = "GET" if body is None else "POST"
        async with session.request(method, f"{sandbox.url}{NAMESPACES}", headers=headers, data=body) as answer:
            return answer.status


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example.com"},
        {"Host": "127.0.0.1.attacker.example.com:80"},
        {"Host": "attacker.example.com:port"},
        {"Origin": "https://attacker.example.com"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_of_a_browser_reads_and_writes_nothing(headers: dict[str, str]) -> None:
    async with Sandbox() as sandbox:
        assert await ask(sandbox, headers) == 403
        assert await ask(sandbox, headers | JSON, NAMESPACE) == 403
        assert not [each for each in sandbox.user.list("namespaces") if each["metadata"]["name"] == "a"]


@pytest.mark.parametrize("content", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_a_page_may_send_unasked_is_not_read(content: str) -> None:
    async with Sandbox() as sandbox:
        assert await ask(sandbox, {"Content-Type": content}, NAMESPACE) == 415
        assert await ask(sandbox, JSON, NAMESPACE) == 201


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8001", "[::1]:8001", "sandbox:8001", "10.1.2.3", "sandbox.test.svc"]
)
async def test_addresses_and_own_names_are_answered(host: str) -> None:
    async with Sandbox(names=["sandbox.test.svc"]) as sandbox:
        assert await ask(sandbox, {"Host": host}) == 200
