"""What the tables say, as the checks compare it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Dialect, Select, Table, select

from levelog_base.wire.objects import ObjectKey
from levelog_store.connect.database import Database
from levelog_store.dialects import OF_SCOPE, built_once, run
from levelog_store.rows import Scope
from levelog_store.tables import (
    backfills,
    checkpoints,
    decisions,
    index_entries,
    intents,
    leases,
    levels,
    metadata,
    objects,
    wakeups,
)

Row = Mapping[str, Any]


class Tables(Struct, frozen=True, kw_only=True):
    """One snapshot of a scope's tables. Levels and wakes are named by view, without the operator, and parent."""

    checkpoints: dict[int, int]
    mirrored: dict[int, int]
    objects: dict[ObjectKey, Row]
    entries: set[tuple[str, str, str, int, str]]
    levels: dict[tuple[str, ObjectKey], Row]
    wakes: dict[tuple[str, ObjectKey], Row]
    intents: dict[str, Row]
    unfinished: set[tuple[str, int]]
    """Views, with partitions, whose levels changed code has not decided on yet."""
    decisions: Sequence[Row]

    def is_due(self, view: str, parent: ObjectKey, now: datetime) -> bool:
        """Tell whether a wake is pending whose time has come."""
        wake = self.wakes.get((view, parent))
        return wake is not None and (wake["due_at"] is None or wake["due_at"] <= now)

    def has_due(self, partitions: Collection[int], now: datetime) -> bool:
        """Tell whether there is anything to decide on in these partitions."""
        return any(partition in partitions for _, partition in self.unfinished) or any(
            row["partition"] in partitions and (row["due_at"] is None or row["due_at"] <= now)
            for row in self.wakes.values()
        )

    def intents_of(self, view: str, parent: ObjectKey, uid: str | None = None) -> Sequence[Row]:
        """Intents of one incarnation's level, or of each one's."""
        return [
            row
            for row in self.intents.values()
            if row["parent"] == str(parent) and uid in (None, row["parent_uid"]) and row["view"].endswith(f"/{view}")
        ]


async def read_tables(database: Database, scope: Scope) -> Tables:
    """Take the snapshot."""
    async with database.reading() as connection:

        async def rows(table: Table, *names: str) -> Sequence[Row]:
            found = await run(connection, scope, _rows_of, table.name, *names)
            keys = tuple(found.keys())
            return [dict(zip(keys, row, strict=True)) for row in found]

        points = await rows(checkpoints, "partition", "sequence", "mirrored")
        return Tables(
            checkpoints={row["partition"]: row["sequence"] for row in points},
            mirrored={row["partition"]: row["mirrored"] for row in points},
            objects={
                ObjectKey.parse(row["object"]): row for row in await rows(objects, "object", "uid", "version", "body")
            },
            entries={
                shown_entry(row["object"], *(row[name] for name in ("index", "key", "ordinal", "value")))
                for row in await rows(index_entries)
                if is_compared(row["index"])
            },
            levels={_named(row): row for row in await rows(levels)},
            wakes={_named(row): row for row in await rows(wakeups)},
            intents={row["key"]: row for row in await rows(intents)},
            unfinished={
                (row["name"].partition("/")[2], row["partition"]) for row in await rows(backfills, "name", "partition")
            },
            decisions=await rows(decisions, "view", "parent", "parent_uid", "round", "intents", "ordinal"),
        )


@built_once
def _rows_of(_: Dialect, name: str, *columns: str) -> Select[*tuple[Any, ...]]:
    table = metadata.tables[name]
    return select(*(table.c[each] for each in columns or table.c.keys())).where(table.c.scope == OF_SCOPE)


async def read_epochs(database: Database, scope: Scope) -> dict[int, int]:
    """Epoch of each partition's lease."""
    async with database.reading() as connection:
        return dict(iter(await run(connection, scope, _rows_of, leases.name, "partition", "epoch")))


def _named(row: Row) -> tuple[str, ObjectKey]:
    return str(row["view"]).partition("/")[2], ObjectKey.parse(row["parent"])


def shown_entry(name: str, index: str, key: str, ordinal: int, value: bytes) -> tuple[str, str, str, int, str]:
    """An entry as the reference shows it."""
    return index.partition("/")[2], key, name, ordinal, "" if key.startswith("!") else _plain(value)


def is_compared(index: str) -> bool:
    """Tell whether the reference has it too: neither notes of resources, which have no operator, nor of children."""
    operator, _, name = index.rpartition("/")
    return operator == "machine" and bool(name)


def _plain(value: bytes) -> str:
    return msgspec.json.encode(msgspec.json.decode(value), order="sorted").decode()
