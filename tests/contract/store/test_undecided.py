"""What the tables know of an object that nothing was decided on: the levels that read it."""

import pytest
from sqlalchemy import insert

from levelog_base.wire.objects import GroupResource
from levelog_history.selection import is_meant
from levelog_store.connect.database import Database
from levelog_store.fold.statewrites import Unwritten, write_reads, write_state
from levelog_store.look.recall import read_levels_reading, read_resources
from levelog_store.rows import WHOLE_INDEX, Entry
from levelog_store.tables import handlers
from rigs.leasing import SCOPE
from rigs.storedobjects import stored_object

SHOP = "webs.example.com/default/shop"


async def fill(database: Database) -> None:
    """Two namespaces with a pod `x`; one of them is under the key that the shop reads."""
    names = ("pods/default/x", "pods/other/x", "pods/default/y", SHOP)
    keys = {"pods/default/x": '"u1"', "pods/other/x": '"u2"'}
    one, every = ("webs/pods", SHOP), ("webs/all", SHOP)
    told = Unwritten(
        objects={name: stored_object(name) for name in names},
        entries={("webs/pods", key, name, 0): Entry("webs/pods", key, 0, b"1") for name, key in keys.items()},
    )
    reads = {(one, ("webs/pods", '"u1"')): True, (every, ("webs/every", f"{WHOLE_INDEX}0")): True}
    code = [
        ("index", "webs/pods", "pods"),
        ("view", "webs/pods", "webs.example.com"),
        ("index", "webs/w", "webs.example.com"),
    ]
    async with database.transaction() as connection:
        await write_state(connection, SCOPE, told)
        await write_reads(connection, SCOPE, reads, dict.fromkeys((one, every), 0))
        await connection.execute(
            insert(handlers),
            [
                {"scope": SCOPE.number, "kind": kind, "name": name, "resource": of, "fingerprint": "", "reads": b"[]"}
                for kind, name, of in code
            ],
        )


async def test_levels_that_read_an_object_are_those_with_a_key_that_it_is_under(database: Database) -> None:
    await fill(database)
    async with database.reading() as connection:
        assert await read_levels_reading(connection, SCOPE, "pods/default/x", 9) == [("webs/pods", SHOP)]
        assert await read_levels_reading(connection, SCOPE, "pods/other/x", 9) == []
        assert await read_resources(connection, SCOPE) == {"pods": False, "webs.example.com": True}


@pytest.mark.parametrize(
    ("said", "resource", "is_so"),
    [
        ("pod", "pods", True),
        ("Pod", "pods", True),
        ("policy", "policies", True),
        ("ingress", "ingresses.networking.k8s.io", True),
        ("ingresses.networking.k8s.io", "ingresses.networking.k8s.io", True),
        ("po", "pods", False),
        ("default", "pods", False),
    ],
)
def test_a_word_stands_for_a_resource_in_the_singular_too(said: str, resource: str, *, is_so: bool) -> None:
    assert is_meant(said, str(GroupResource.parse(resource))) is is_so
