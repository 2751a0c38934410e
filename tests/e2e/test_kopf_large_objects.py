"""An object of 300 KB, which Kopf copies into an annotation: a real API server allows these 256 KiB in all."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rigs.controlplane import ControlPlane
from rigs.kopfrivals import DEFINITION, KOPF, Handlers, Side
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COLLECTION = "/apis/example.com/v1/namespaces/default/shops"
SOURCE = """
@kopf.on.create(*SHOPS)
def big(spec, **_):
    tell("big", len(spec["data"]))
    return 1
"""


async def handled(side: Side, cluster: ControlPlane, folder: Path) -> tuple[Any, int]:
    """The status of such an object once it is there or 15 s are over, and how often the handler was called."""
    api = cluster.admin
    await api.create(DEFINITIONS, DEFINITION)
    metadata = {"name": "a", "namespace": "default"}
    shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": {"data": "x" * 300_000}}

    async def status() -> Any:
        return (await api.request("GET", f"{COLLECTION}/a"))[1].get("status")

    async def is_calm() -> bool:
        return bool(await status() == {"big": 1}) and bool(handlers.told("made"))

    handlers = Handlers(side, folder, cluster.kubeconfig, SOURCE)
    await api.apply(COLLECTION, shop)
    handlers.start()
    try:
        await handlers.tells("big")
        with suppress(TimeoutError):
            await until(is_calm, "the result", seconds=15)
        return await status(), len(handlers.told("big"))
    finally:
        handlers.kill()


async def test_a_large_object_is_handled_once(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    assert await handled("levelog", private_control_plane, tmp_path) == ({"big": 1}, 1)


@pytest.mark.long
@pytest.mark.skipif(not KOPF.exists(), reason="Kopf has an environment of its own, which `make bench` makes")
async def test_kopf_itself_cannot_note_that_it_was_handled(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    status, calls = await handled("Kopf", private_control_plane, tmp_path)
    assert status is None, (status, calls)
