"""Where the sandbox does less than the API server, its refusal says so, and what to do instead."""

import aiohttp
import pytest

from levelog_sandbox import Sandbox


@pytest.mark.parametrize(
    ("method", "content_type", "hint"),
    [
        ("POST", "application/vnd.kubernetes.protobuf", "(the sandbox reads JSON and YAML, no protobuf: "),
        ("PATCH", "application/strategic-merge-patch+json", "(the sandbox has no strategic merge patch: use kubectl "),
    ],
)
async def test_a_body_of_a_type_that_only_the_api_server_reads(method: str, content_type: str, hint: str) -> None:
    async with Sandbox() as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        path = "/api/v1/namespaces/default/configmaps" + ("/a" if method == "PATCH" else "")
        async with session.request(method, path, data=b"{}", headers={"Content-Type": content_type}) as answer:
            refused = await answer.json()
    assert refused["code"] == 415
    assert hint in refused["message"]
