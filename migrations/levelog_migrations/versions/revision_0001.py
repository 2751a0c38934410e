"""All tables of the first version."""

from typing import Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: Final = "0001"
down_revision: Final = None

JSON: Final = sa.Text().with_variant(postgresql.JSON(), "postgresql")
TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME: Final = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "scopes",
        sa.Column("scope", sa.Integer, autoincrement=True, nullable=False),
        sa.Column("cluster", TEXT, nullable=False),
        sa.Column("application", TEXT, nullable=False),
        sa.Column("partitions", sa.SmallInteger, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False, comment="code that may commit"),
        sa.Column(
            "stream_created", TEXT, nullable=False, comment="identity of the stream that the tables were folded from"
        ),
        sa.Column("resets", sa.Integer, nullable=False, comment="how often all that was folded was deleted"),
        sa.PrimaryKeyConstraint("scope", name="scopes_pkey"),
    )
    op.create_index("scopes_cluster_application", "scopes", ["cluster", "application"], unique=True)
    op.create_table(
        "checkpoints",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, comment="last record folded"),
        sa.Column("record_id", TEXT, nullable=False, comment="id of the last record folded of this partition"),
        sa.Column("record_sequence", sa.BigInteger, nullable=False, comment="its sequence"),
        sa.Column("time", TIME),
        sa.PrimaryKeyConstraint("scope", "partition", name="checkpoints_pkey"),
    )
    op.create_table(
        "leases",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False, comment="raised by each change of owner or code"),
        sa.Column("owner", TEXT, nullable=False, comment="processor; empty: free"),
        sa.Column("expires_at", TIME),
        sa.PrimaryKeyConstraint("scope", "partition", name="leases_pkey"),
    )
    op.create_table(
        "processors",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("owner", TEXT, autoincrement=False, nullable=False),
        sa.Column("joined_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("scope", "owner", name="processors_pkey"),
    )
    op.create_table(
        "handlers",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("kind", TEXT, autoincrement=False, nullable=False),
        sa.Column("name", TEXT, autoincrement=False, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("resource", TEXT, nullable=False, comment="of the objects that it is given"),
        sa.Column("reads", JSON, nullable=False, comment="names of the indices that a view may read"),
        sa.PrimaryKeyConstraint("scope", "kind", "name", name="handlers_pkey"),
        comment="indices, views and reconcile functions of the code that may commit",
    )
    op.create_table(
        "backfills",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("name", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("kind", TEXT, nullable=False, comment="index: entries are computed anew; view: parents are woken"),
        sa.Column("resource", TEXT, nullable=False),
        sa.Column("position", TEXT, nullable=False, comment="last object that is done; empty: none"),
        sa.Column("objects", sa.BigInteger, nullable=False, comment="how many are done"),
        sa.Column("is_done", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", "partition", name="backfills_pkey"),
    )
    op.create_table(
        "syncs",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("resource", TEXT, autoincrement=False, nullable=False),
        sa.Column("unfinished", TEXT, nullable=False, comment="lists under way, and where each began"),
        sa.Column("started_sequence", sa.BigInteger, nullable=False, comment="of the list that began last"),
        sa.Column("finished_sequence", sa.BigInteger, nullable=False, comment="0: no list was ever complete"),
        sa.Column("namespaces", TEXT, nullable=False, comment="that are listed and watched; empty: all"),
        sa.Column("version", sa.BigInteger, nullable=False, comment="resourceVersion of the last complete list"),
        sa.Column(
            "gap_sequence", sa.BigInteger, nullable=False, comment="of the last note that history is missing; 0: none"
        ),
        sa.Column("heard_at", TIME),
        sa.Column("error", TEXT, nullable=False, comment="why nothing is heard of the resource now; empty: it is"),
        sa.PrimaryKeyConstraint("scope", "partition", "resource", name="syncs_pkey"),
    )
    op.create_table(
        "objects",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("object", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False),
        sa.Column("resource", TEXT, nullable=False),
        sa.Column("namespace", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("uid", TEXT, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("is_deleting", sa.Boolean, nullable=False, comment="has a deletionTimestamp"),
        sa.Column("manager", TEXT, comment="field manager that wrote it last"),
        sa.Column("recorded_at", TIME),
        sa.Column("body", JSON, nullable=False),
        sa.PrimaryKeyConstraint("scope", "object", name="objects_pkey"),
    )
    op.create_index("objects_resource", "objects", ["scope", "resource", "partition"])
    op.create_table(
        "tombstones",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("object", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False),
        sa.Column("uid", TEXT, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, comment="records up to this version are late"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("scope", "object", name="tombstones_pkey"),
    )
    op.create_table(
        "unreadable",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("place", TEXT, autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, comment="of the last record there that cannot be read"),
        sa.Column("error", TEXT, nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("scope", "partition", "place", name="unreadable_pkey"),
        comment="records that were skipped; a place is an object, else a resource or the subject of a control record",
    )
    op.create_table(
        "index_entries",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("index", TEXT, autoincrement=False, nullable=False),
        sa.Column("key", TEXT, autoincrement=False, nullable=False),
        sa.Column("object", TEXT, autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("value", JSON, nullable=False),
        sa.Column("error", TEXT, nullable=False, comment="why the entry is stale; empty: it is not"),
        sa.Column("expires_at", TIME),
        sa.PrimaryKeyConstraint("scope", "index", "key", "object", "ordinal", name="index_entries_pkey"),
    )
    op.create_index("index_entries_object", "index_entries", ["scope", "object", "index"])
    op.create_index(
        "index_entries_expiry",
        "index_entries",
        ["scope", "expires_at"],
        postgresql_where=sa.text("expires_at IS NOT NULL"),
        sqlite_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_table(
        "key_versions",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("index", TEXT, autoincrement=False, nullable=False),
        sa.Column("key", TEXT, autoincrement=False, nullable=False),
        sa.Column(
            "version",
            sa.BigInteger,
            nullable=False,
            comment="sequence of the record that changed the key last; 0: none yet",
        ),
        sa.PrimaryKeyConstraint("scope", "index", "key", name="key_versions_pkey"),
    )
    op.create_table(
        "levels",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("view", TEXT, autoincrement=False, nullable=False),
        sa.Column("parent", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False),
        sa.Column("parent_uid", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("desired", JSON),
        sa.Column("actual", JSON),
        sa.Column("drift", JSON),
        sa.Column("round", sa.Integer, nullable=False, comment="reconcile calls, ever"),
        sa.Column("attempts", sa.Integer, nullable=False, comment="rounds since inputs changed last"),
        sa.Column("evaluations", sa.Integer, nullable=False),
        sa.Column("inputs", TEXT, nullable=False, comment="digest of what the view saw of its parent"),
        sa.Column(
            "looked_at", JSON, comment="[[how, step, …], …]: places in a parent that the view takes as plain JSON"
        ),
        sa.Column("reads", TEXT, nullable=False, comment="digest of what the keys read held"),
        sa.Column("decided_inputs", TEXT, nullable=False, comment="digest of parent and keys at the last round"),
        sa.Column("repeats", TEXT, comment="rounds in a row that wrote for one and the same state, as JSON"),
        sa.Column(
            "cause", sa.BigInteger, nullable=False, comment="sequence of the newest record that led to the evaluation"
        ),
        sa.Column(
            "suppressed",
            TEXT,
            nullable=False,
            server_default="",
            comment="records that asked since the last decision, and changed nothing that the view reads",
        ),
        sa.Column("recheck_at", TIME),
        sa.Column("evaluated_at", TIME),
        sa.PrimaryKeyConstraint("scope", "view", "parent", name="levels_pkey"),
    )
    op.create_index("levels_partition", "levels", ["scope", "partition", "view"])
    op.create_index("levels_parent", "levels", ["scope", "parent"])
    op.create_index("levels_status", "levels", ["scope", "status"])
    op.create_table(
        "dependencies",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("view", TEXT, autoincrement=False, nullable=False),
        sa.Column("parent", TEXT, autoincrement=False, nullable=False),
        sa.Column("index", TEXT, autoincrement=False, nullable=False),
        sa.Column("key", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False, comment="of the parent"),
        sa.PrimaryKeyConstraint("scope", "view", "parent", "index", "key", name="dependencies_pkey"),
    )
    op.create_index("dependencies_key", "dependencies", ["scope", "index", "key"])
    op.create_table(
        "wakeups",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("view", TEXT, autoincrement=False, nullable=False),
        sa.Column("parent", TEXT, autoincrement=False, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False, comment="of the parent"),
        sa.Column("cause", sa.BigInteger, nullable=False, comment="sequence of the newest record that asks for it"),
        sa.Column(
            "causes",
            TEXT,
            nullable=False,
            server_default="",
            comment="12,15,17: all records that ask, the first ones if there are many; empty: its time, or a person",
        ),
        sa.Column(
            "generation",
            sa.BigInteger,
            nullable=False,
            comment="drawn anew by each request; a decision consumes the one it saw",
        ),
        sa.Column("due_at", TIME),
        sa.PrimaryKeyConstraint("scope", "view", "parent", name="wakeups_pkey"),
    )
    op.create_index(
        "wakeups_due",
        "wakeups",
        ["scope", "due_at"],
        postgresql_where=sa.text("due_at IS NOT NULL"),
        sqlite_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "wakeups_fresh",
        "wakeups",
        ["scope", "cause", "view", "parent"],
        postgresql_where=sa.text("due_at IS NULL"),
        sqlite_where=sa.text("due_at IS NULL"),
    )
    op.create_table(
        "intents",
        sa.Column("scope", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("key", TEXT, autoincrement=False, nullable=False),
        sa.Column("view", TEXT, nullable=False),
        sa.Column("parent", TEXT, nullable=False),
        sa.Column("parent_uid", TEXT, nullable=False),
        sa.Column("partition", sa.SmallInteger, nullable=False, comment="of the parent"),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False, comment="order within the round"),
        sa.Column("verb", TEXT, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("api_version", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("target_uid", TEXT, nullable=False, comment="incarnation that the decision saw; empty: none"),
        sa.Column(
            "target_version", sa.BigInteger, nullable=False, comment="resourceVersion that the decision saw; 0: none"
        ),
        sa.Column("is_watched", sa.Boolean, nullable=False, comment="the target's resource is read by the operator"),
        sa.Column("body", JSON, nullable=False, comment="redacted, if something in it had to be"),
        sa.Column("sealed", sa.LargeBinary, comment="the body as it is to be sent, encrypted, where it is redacted"),
        sa.Column("options", JSON, nullable=False),
        sa.Column(
            "state", TEXT, nullable=False, comment="pending, claimed, written, settled, satisfied, failed, superseded"
        ),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", TIME),
        sa.Column("owner", TEXT, nullable=False, comment="actuator that claimed it"),
        sa.Column("expires_at", TIME),
        sa.Column("error", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False, comment="as the receipt has it; empty: there is none"),
        sa.Column("cause", sa.BigInteger, nullable=False),
        sa.Column("decided_at", TIME, nullable=False),
        sa.Column("receipt", JSON, comment="ReceiptNoted, once there is one"),
        sa.Column("is_relayed", sa.Boolean, nullable=False, comment="the receipt is in the log"),
        sa.Column("is_folded", sa.Boolean, nullable=False, comment="the receipt came back from the log"),
        sa.Column("result_uid", TEXT, nullable=False),
        sa.Column("result_version", sa.BigInteger, nullable=False),
        sa.Column(
            "sighted_version",
            sa.BigInteger,
            comment="resourceVersion that the API had when the log had not shown the write for a while; 0: gone",
        ),
        sa.Column("sighted_at", TIME),
        sa.PrimaryKeyConstraint("scope", "key", name="intents_pkey"),
    )
    op.create_index(
        "intents_applied",
        "intents",
        ["scope", "target", "decided_at", "round", "ordinal"],
        postgresql_where=sa.text("verb = 'apply'"),
        sqlite_where=sa.text("verb = 'apply'"),
    )
    op.create_index(
        "intents_open",
        "intents",
        ["scope", "due_at"],
        postgresql_where=sa.text("state IN ('pending', 'claimed')"),
        sqlite_where=sa.text("state IN ('pending', 'claimed')"),
    )
    op.create_index("intents_parent", "intents", ["scope", "view", "parent", "round"])
    op.create_index(
        "intents_unrelayed",
        "intents",
        ["scope"],
        postgresql_where=sa.text("receipt IS NOT NULL AND NOT is_relayed"),
        sqlite_where=sa.text("receipt IS NOT NULL AND NOT is_relayed"),
    )
    op.create_index(
        "intents_unsettled",
        "intents",
        ["scope", "target"],
        postgresql_where=sa.text("state IN ('pending', 'claimed', 'written')"),
        sqlite_where=sa.text("state IN ('pending', 'claimed', 'written')"),
    )
    op.create_table(
        "decisions",
        sa.Column(
            "ordinal",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            autoincrement=True,
            nullable=False,
            comment="order in which they were written; for one level, that in which they were made",
        ),
        sa.Column("scope", sa.Integer, nullable=False),
        sa.Column("view", TEXT, nullable=False),
        sa.Column("parent", TEXT, nullable=False),
        sa.Column("parent_uid", TEXT, nullable=False),
        sa.Column("parent_sequence", sa.BigInteger, nullable=False),
        sa.Column("cause", sa.BigInteger, nullable=False, comment="sequence of the newest record that led to it"),
        sa.Column("causes", TEXT, nullable=False, comment="as in wakeups"),
        sa.Column("suppressed", TEXT, nullable=False, comment="as in levels, since the decision before"),
        sa.Column(
            "is_called", sa.Boolean, nullable=False, comment="the view was called; else only the status is another"
        ),
        sa.Column(
            "reads",
            JSON,
            nullable=False,
            comment="[[index, key, sequence that changed it last, what it held or null], …]",
        ),
        sa.Column("status", TEXT, nullable=False, comment="of the level after it"),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("desired", JSON),
        sa.Column("actual", JSON),
        sa.Column("drift", JSON, comment="{missing, extra, changed: [key, …]}"),
        sa.Column("intents", JSON, nullable=False, comment="idempotency keys"),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("decided_at", TIME, nullable=False),
        sa.Column(
            "snapshot",
            sa.BigInteger,
            nullable=False,
            comment="sum of the sequences up to which the partitions were folded: orders what was seen",
        ),
        sa.Column("basis", JSON, nullable=False, comment="what it rests on besides parent and reads, to be replayed"),
        sa.PrimaryKeyConstraint("ordinal", name="decisions_pkey"),
        comment="levels that were evaluated, or got another status",
    )
    op.create_index("decisions_parent", "decisions", ["scope", "parent", "view", "ordinal"])


def downgrade() -> None:
    """Drop them."""
    for table in (
        "decisions",
        "intents",
        "wakeups",
        "dependencies",
        "levels",
        "key_versions",
        "index_entries",
        "unreadable",
        "tombstones",
        "objects",
        "syncs",
        "backfills",
        "handlers",
        "processors",
        "leases",
        "checkpoints",
        "scopes",
    ):
        op.drop_table(table)
