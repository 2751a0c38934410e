"""Names that handlers cannot have, since a SQL view of that name would hide a table; loads no SQL."""

from typing import Final

INPUTS: Final = "inputs"
"""SQL view of the resources that an application reads."""

RESERVED: Final = frozenset(
    {
        "alembic_version",
        "backfills",
        "checkpoints",
        "decisions",
        "dependencies",
        "handlers",
        "index_entries",
        INPUTS,
        "intents",
        "key_versions",
        "leases",
        "levels",
        "objects",
        "processors",
        "scopes",
        "syncs",
        "tombstones",
        "unreadable",
        "wakeups",
    }
)
