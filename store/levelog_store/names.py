"""Names that handlers cannot have, since a SQL view of that name would hide a table; loads no SQL."""

from typing import Final

RESERVED: Final = frozenset(
    {
        "alembic_version",
        "checkpoints",
        "decisions",
        "dependencies",
        "index_entries",
        "intents",
        "key_versions",
        "leases",
        "levels",
        "objects",
        "processors",
        "scopes",
        "syncs",
        "tombstones",
        "wakeups",
    }
)
