"""`v1alpha1` becomes `v1beta1` on a real API server, with the log and the database that were there before."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog
from rigs.run.examples import short_or_whole
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OPERATOR = """
from collections.abc import Iterator

from levelog import Manifest, Operator, Resource, Struct

op = Operator("shops")

class ShopSpec(Struct):
    image: str
TIER
class Shop(Resource, group="example.com", version="VERSION", plural="shops"):
    spec: ShopSpec

class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass

@op.children(Shop, of=ConfigMap)
def config(shop: Shop) -> Iterator[Manifest]:
    data = {"image": shop.spec.image, "tier": TOLD}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": shop.metadata.name}, "data": data}
"""


def served(name: str, *, is_stored: bool, **fields: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"image": {"type": "string"}, **fields}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {"name": name, "served": True, "storage": is_stored, "schema": schema}


BEFORE = [served("v1alpha1", is_stored=True)]
AFTER = [served("v1alpha1", is_stored=False), served("v1beta1", is_stored=True, tier={"type": "string"})]


class Tables:
    """The embedded database of a running stack."""

    def __init__(self, levelog: Levelog) -> None:
        self._address = f"{(levelog.data / 'levelog.db').absolute().as_uri()}?mode=ro"

    def count(self, query: str) -> int:
        try:
            with closing(sqlite3.connect(self._address, uri=True)) as database:
                return int(database.execute(query).fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def in_sync(self) -> int:
        return self.count("SELECT count(*) FROM levels WHERE status = 'in_sync'")

    def shown_in(self, version: str) -> int:
        return self.count(
            "SELECT count(*) FROM objects WHERE resource = 'shops.example.com' "
            f"AND json_extract(CAST(body AS text), '$.apiVersion') = 'example.com/{version}'"
        )


async def test_a_newer_version_takes_over_with_nothing_removed_and_nothing_written_that_is_not_due(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    shops = short_or_whole(20, 1000)
    cluster = private_control_plane
    api, levelog = cluster.admin, Levelog(tmp_path, cluster.kubeconfig)
    tables = Tables(levelog)
    (tmp_path / "old.py").write_text(
        OPERATOR.replace("VERSION", "v1alpha1").replace("TIER", "").replace("TOLD", '"basic"')
    )
    tier = '    tier: str = "basic"\n'
    newer = OPERATOR.replace("VERSION", "v1beta1").replace("TIER", tier).replace("TOLD", "shop.spec.tier")
    (tmp_path / "new.py").write_text(newer)
    names = {"plural": "shops", "kind": "Shop"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": BEFORE}
    await api.create(DEFINITIONS, {"metadata": {"name": "shops.example.com"}, "spec": spec})

    def at(version: str) -> str:
        return f"/apis/example.com/{version}/namespaces/default/shops"

    async def serves(version: str) -> None:
        await api.shows(at(version))

    async def create(number: int) -> None:
        manifest = {"apiVersion": "example.com/v1alpha1", "kind": "Shop", "metadata": {"name": f"shop-{number}"}}
        await api.apply(at("v1alpha1"), {**manifest, "spec": {"image": "a"}})

    async def written() -> list[tuple[str, str]]:
        requests = await cluster.audit.writes(resource="configmaps")
        return [(each.verb, each.name) for each in requests if "levelog" in each.user_agent]

    await serves("v1alpha1")
    for first in range(0, shops, 20):
        await asyncio.gather(*(create(number) for number in range(first, first + 20)))
    old = levelog.start("run", "old.py")
    new = None
    try:

        async def all_in_sync() -> bool:
            return tables.in_sync() == shops

        await until(all_in_sync, "all shops in sync", seconds=400)
        assert len(await written()) == shops
        await api.patch(f"{DEFINITIONS}/shops.example.com", {"spec": {"versions": AFTER}})
        await serves("v1beta1")
        told = " ".join((await levelog.ends("doctor", "new.py")).stdout.split())
        assert "records shops.example.com in version example.com/v1alpha1, Shop of application shops declares" in told
        assert "→ nothing: the next ingest lists it anew, what reads it is blocked until then, history stays" in told
        assert await old.stops() == 0

        new = levelog.start("run", "new.py")
        await new.says(f"listed {shops} objects", "shops.example.com", seconds=120)

        async def has_taken_over() -> bool:
            return tables.shown_in("v1beta1") == shops and tables.in_sync() == shops

        await until(has_taken_over, "all shops in sync in the newer version", seconds=400)
        assert len(await written()) == shops
        await api.patch(f"{at('v1beta1')}/shop-7", {"spec": {"tier": "gold"}})
        await until(written, "the one write that is due", accept=lambda found: len(found) > shops)
        await until(all_in_sync, "all shops in sync again")
        assert (await written())[shops:] == [("patch", "shop-7")]

        lines = (await levelog.ends("history", "shops.example.com/default/shop-7", "--json")).stdout.splitlines()
        revisions = [json.loads(line) for line in lines]
        changes = [{each["path"] for each in revision.get("differences", ())} for revision in revisions]
        assert changes[0] == set(), lines
        assert any("apiVersion" in paths for paths in changes), lines
        assert changes[-1] == {"spec.tier"}, lines
        assert await new.stops() == 0
    finally:
        for process in (old, new):
            if process is not None:
                process.kill()
    assert (await levelog.refused("run", "old.py", status=2)).startswith(
        "application shops records shops.example.com in version example.com/v1beta1, Shop of application shops "
        "declares example.com/v1alpha1, which is older: "
    )
