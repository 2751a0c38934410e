from typing import cast

import pytest

from levelog_base.errors import LevelogError
from levelog_kube.client import Answer, KubeClient
from levelog_kube.discovery import cluster_uid


@pytest.mark.parametrize("body", [b'{"metadata":{}}', b'{"metadata":{"uid":""}}', b"[]", b"<html>"])
async def test_a_server_that_does_not_say_which_cluster_it_is_is_none(body: bytes) -> None:
    class Proxy:
        async def request(self, method: str, path: str) -> Answer:
            return Answer(status=200, headers={}, body=body)

    with pytest.raises(LevelogError, match="cannot be read"):
        await cluster_uid(cast("KubeClient", Proxy()))
