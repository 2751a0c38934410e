"""Where the sandbox does less than the API server, its refusal says so, and what to do instead."""

import aiohttp

from levelog_sandbox import Sandbox


async def test_a_body_of_a_type_that_only_the_api_server_reads() -> None:
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    path = "/api/v1/namespaces/default/configmaps"
    async with (
        Sandbox() as sandbox,
        aiohttp.ClientSession(sandbox.url) as session,
        session.post(path, data=b"k8s", headers=protobuf) as answer,
    ):
        refused = await answer.json()
    assert refused["code"] == 415
    assert "(the sandbox reads JSON and YAML, no protobuf: " in refused["message"]
