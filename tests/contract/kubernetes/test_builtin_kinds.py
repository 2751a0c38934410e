"""The sandbox's table of core kinds against the server from which it was taken."""

import json

import pytest

from rigs.builtinkinds import FILE, builtin_kinds
from rigs.clusterclient import ClusterClient
from rigs.controlplane import ControlPlane


async def test_the_table_of_core_kinds_is_what_the_server_says(control_plane: ControlPlane) -> None:
    shipped = json.loads(FILE.read_text())
    server = control_plane
    async with ClusterClient(server.url, ca_file=server.ca_file, token=server.admin_token) as api:
        said = await builtin_kinds(api)
    if said["minor"] != shipped["minor"]:
        pytest.skip(f"the table is of 1.{shipped['minor']}, the server is 1.{said['minor']}")
    assert said["kinds"] == shipped["kinds"]
    assert said["definitions"] == shipped["definitions"]
