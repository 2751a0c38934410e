"""The tables, as SQLAlchemy Core defines them; the first revision creates them.

Every key begins with the scope: one number for a cluster and an application. Objects are named by their key as text,
`webs.example.com/default/shop`, so that any table can be read by eye.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, SmallInteger, Table, text

from levelog_store.dialects import BYTE_TEXT, Json, Timestamp

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def _scope() -> Column[int]:
    return Column("scope", Integer, primary_key=True, autoincrement=False)


def _key(name: str, kind: Any = BYTE_TEXT) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _time(name: str, *, nullable: bool = True) -> Column[Any]:
    return Column(name, Timestamp, nullable=nullable)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows for which the condition holds, as both dialects write it."""
    condition = text(where)
    return Index(name, "scope", *columns, unique=unique, postgresql_where=condition, sqlite_where=condition)


scopes = Table(
    "scopes",
    metadata,
    Column("scope", Integer, primary_key=True, autoincrement=True),
    Column("cluster", BYTE_TEXT, nullable=False),
    Column("application", BYTE_TEXT, nullable=False),
    Column("partitions", SmallInteger, nullable=False),
    Column("fingerprint", BYTE_TEXT, nullable=False, comment="code that may commit"),
    Column("stream_created", BYTE_TEXT, nullable=False, comment="identity of the stream that was folded"),
    Column("resets", Integer, nullable=False, comment="how often all that was folded was deleted"),
    _time("calls_recorded_at"),
    Index("scopes_cluster_application", "cluster", "application", unique=True),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _scope(),
    _key("partition", SmallInteger),
    Column("sequence", BigInteger, nullable=False, comment="last record folded"),
    Column("record_id", BYTE_TEXT, nullable=False, comment="id of the last record folded of this partition"),
    Column("record_sequence", BigInteger, nullable=False, comment="its sequence"),
    _time("time"),
)

leases = Table(
    "leases",
    metadata,
    _scope(),
    _key("partition", SmallInteger),
    Column("epoch", BigInteger, nullable=False, comment="raised by each change of owner or code"),
    Column("owner", BYTE_TEXT, nullable=False, comment="processor; empty: free"),
    _time("expires_at"),
)

processors = Table(
    "processors",
    metadata,
    _scope(),
    _key("owner"),
    _time("joined_at", nullable=False),
    _time("expires_at", nullable=False),
)

actuators = Table(
    "actuators",
    metadata,
    _scope(),
    _key("owner"),
    _time("expires_at", nullable=False),
    comment="until when each is present; then others take its claims",
)

handlers = Table(
    "handlers",
    metadata,
    _scope(),
    _key("kind"),
    _key("name"),
    Column("fingerprint", BYTE_TEXT, nullable=False),
    Column("resource", BYTE_TEXT, nullable=False, comment="of the objects that it is given"),
    Column("reads", Json, nullable=False, comment="names of the indices that a view may read"),
    comment="indices, views and reconcile functions of the code that may commit",
)

backfills = Table(
    "backfills",
    metadata,
    _scope(),
    _key("name"),
    _key("partition", SmallInteger),
    Column("kind", BYTE_TEXT, nullable=False, comment="index: entries are computed anew; view: parents are woken"),
    Column("resource", BYTE_TEXT, nullable=False),
    Column("position", BYTE_TEXT, nullable=False, comment="last object that is done; empty: none"),
    Column("objects", BigInteger, nullable=False, comment="how many are done"),
    Column("is_done", Boolean, nullable=False),
)

syncs = Table(
    "syncs",
    metadata,
    _scope(),
    _key("partition", SmallInteger),
    _key("resource"),
    Column("unfinished", BYTE_TEXT, nullable=False, comment="lists under way, and where each began"),
    Column("started_sequence", BigInteger, nullable=False, comment="of the list that began last"),
    Column("finished_sequence", BigInteger, nullable=False, comment="0: no list was ever complete"),
    Column("namespaces", BYTE_TEXT, nullable=False, comment="that are listed and watched; empty: all"),
    Column("api_version", BYTE_TEXT, nullable=False, comment="in which it is recorded; empty: nobody says"),
    Column("version", BigInteger, nullable=False, comment="resourceVersion of the last complete list"),
    Column("gap_sequence", BigInteger, nullable=False, comment="of the last note that history is missing; 0: none"),
    _time("heard_at"),
    Column("error", BYTE_TEXT, nullable=False, comment="why nothing is heard of the resource now; empty: it is"),
)

objects = Table(
    "objects",
    metadata,
    _scope(),
    _key("object"),
    Column("partition", SmallInteger, nullable=False),
    Column("resource", BYTE_TEXT, nullable=False),
    Column("namespace", BYTE_TEXT, nullable=False),
    Column("name", BYTE_TEXT, nullable=False),
    Column("uid", BYTE_TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("is_deleting", Boolean, nullable=False, comment="has a deletionTimestamp"),
    Column("manager", BYTE_TEXT, comment="field manager that wrote it last"),
    _time("recorded_at"),
    Column("body", Json, nullable=False),
    Index("objects_resource", "scope", "resource", "partition"),
)

tombstones = Table(
    "tombstones",
    metadata,
    _scope(),
    _key("object"),
    Column("partition", SmallInteger, nullable=False),
    Column("uid", BYTE_TEXT, nullable=False),
    Column("version", BigInteger, nullable=False, comment="records up to this version are late"),
    Column("sequence", BigInteger, nullable=False),
    _time("deleted_at", nullable=False),
)

unreadable = Table(
    "unreadable",
    metadata,
    _scope(),
    _key("partition", SmallInteger),
    _key("place"),
    Column("sequence", BigInteger, nullable=False, comment="of the last record there that cannot be read"),
    Column("error", BYTE_TEXT, nullable=False),
    _time("recorded_at", nullable=False),
    comment="records that were skipped; a place is an object, else a resource or the subject of a control record",
)

call_positions = Table(
    "call_positions",
    metadata,
    _scope(),
    _key("handler"),
    _key("partition", SmallInteger),
    Column(
        "position",
        BigInteger,
        nullable=False,
        comment="up to here all is called, but for what is held: a sequence, or of a timer microseconds since 1970",
    ),
    comment="how far each handler is whose calls leave no records",
)

call_holds = Table(
    "call_holds",
    metadata,
    _scope(),
    _key("handler"),
    _key("object"),
    Column("partition", SmallInteger, nullable=False),
    Column("position", BigInteger, nullable=False, comment="of its first record that is not handled, or due time"),
    Column("attempts", Integer, nullable=False, comment="calls for that one that failed"),
    Column("error", BYTE_TEXT, nullable=False, comment="of the last of them; empty: it is being called"),
    _time("since", nullable=False),
    _time("due_at", nullable=False),
    comment="objects whose calls fail, or have not returned",
)

index_entries = Table(
    "index_entries",
    metadata,
    _scope(),
    _key("index"),
    _key("key"),
    _key("object"),
    _key("ordinal", SmallInteger),
    Column("value", Json, nullable=False),
    Column("error", BYTE_TEXT, nullable=False, comment="why the entry is stale; empty: it is not"),
    _time("expires_at"),
    Index("index_entries_object", "scope", "object", "index"),
    _partial("index_entries_expiry", "expires_at", where="expires_at IS NOT NULL"),
)

key_versions = Table(
    "key_versions",
    metadata,
    _scope(),
    _key("index"),
    _key("key"),
    Column("version", BigInteger, nullable=False, comment="sequence that changed the key last; 0: none yet"),
)

levels = Table(
    "levels",
    metadata,
    _scope(),
    _key("view"),
    _key("parent"),
    Column("partition", SmallInteger, nullable=False),
    Column("parent_uid", BYTE_TEXT, nullable=False),
    Column("status", BYTE_TEXT, nullable=False),
    Column("reason", BYTE_TEXT, nullable=False),
    Column("desired", Json),
    Column("actual", Json),
    Column("drift", Json),
    Column("round", Integer, nullable=False, comment="reconcile calls, ever"),
    Column("attempts", Integer, nullable=False, comment="rounds since inputs changed last"),
    Column("evaluations", Integer, nullable=False),
    Column("inputs", BYTE_TEXT, nullable=False, comment="digest of what the view saw of its parent"),
    Column("looked_at", Json, comment="[[how, step, …], …]: places in a parent that the view takes as plain JSON"),
    Column("reads", BYTE_TEXT, nullable=False, comment="digest of what the keys read held"),
    Column(
        "versions", BYTE_TEXT, nullable=False, server_default="", comment="digest of the sequences that changed them"
    ),
    Column("decided_inputs", BYTE_TEXT, nullable=False, comment="digest of parent and keys at the last round"),
    Column("repeats", BYTE_TEXT, comment="rounds in a row that wrote for one and the same state, as JSON"),
    Column("cause", BigInteger, nullable=False, comment="sequence of the newest record that led to the evaluation"),
    Column(
        "suppressed",
        BYTE_TEXT,
        nullable=False,
        server_default="",
        comment="records that asked since the last decision, and changed nothing that the view reads",
    ),
    _time("recheck_at"),
    _time("evaluated_at"),
    _time("since"),
    Index("levels_parent", "scope", "parent"),
    Index("levels_status", "scope", "status"),
    Index("levels_partition", "scope", "partition", "view"),
)

dependencies = Table(
    "dependencies",
    metadata,
    _scope(),
    _key("view"),
    _key("parent"),
    _key("index"),
    _key("key"),
    Column("partition", SmallInteger, nullable=False, comment="of the parent"),
    Index("dependencies_key", "scope", "index", "key"),
)

wakeups = Table(
    "wakeups",
    metadata,
    _scope(),
    _key("view"),
    _key("parent"),
    Column("partition", SmallInteger, nullable=False, comment="of the parent"),
    Column("cause", BigInteger, nullable=False, comment="sequence of the newest record that asks for it"),
    Column(
        "causes",
        BYTE_TEXT,
        nullable=False,
        server_default="",
        comment="12,15,17: all records that ask, the first ones if there are many; empty: its time, or a person",
    ),
    Column("generation", BigInteger, nullable=False, comment="drawn anew by each request"),
    _time("due_at"),
    _partial("wakeups_fresh", "cause", "view", "parent", where="due_at IS NULL"),
    _partial("wakeups_due", "due_at", where="due_at IS NOT NULL"),
)

intents = Table(
    "intents",
    metadata,
    _scope(),
    _key("key"),
    Column("view", BYTE_TEXT, nullable=False),
    Column("parent", BYTE_TEXT, nullable=False),
    Column("parent_uid", BYTE_TEXT, nullable=False),
    Column("partition", SmallInteger, nullable=False, comment="of the parent"),
    Column("round", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False, comment="order within the round"),
    Column("verb", BYTE_TEXT, nullable=False),
    Column("target", BYTE_TEXT, nullable=False),
    Column("api_version", BYTE_TEXT, nullable=False),
    Column("kind", BYTE_TEXT, nullable=False),
    Column("target_uid", BYTE_TEXT, nullable=False, comment="incarnation that the decision saw; empty: none"),
    Column("target_version", BigInteger, nullable=False, comment="resourceVersion that the decision saw; 0: none"),
    Column("is_watched", Boolean, nullable=False, comment="the target's resource is read by the operator"),
    Column("body", Json, nullable=False, comment="redacted, if something in it had to be"),
    Column("sealed", LargeBinary, comment="the body as it is to be sent, encrypted, where it is redacted"),
    Column("options", Json, nullable=False),
    Column("progress", Json, comment="what a call that lasts has kept"),
    Column(
        "state", BYTE_TEXT, nullable=False, comment="pending, claimed, written, settled, satisfied, failed, superseded"
    ),
    Column("attempts", Integer, nullable=False),
    _time("due_at"),
    Column("owner", BYTE_TEXT, nullable=False, comment="actuator that claimed it"),
    Column("claim", BigInteger, nullable=False, server_default="0", comment="drawn anew by each claim; 0: none yet"),
    _time("expires_at"),
    Column("error", BYTE_TEXT, nullable=False),
    Column("outcome", BYTE_TEXT, nullable=False, comment="as the receipt has it; empty: there is none"),
    Column("cause", BigInteger, nullable=False),
    _time("decided_at", nullable=False),
    Column("receipt", Json, comment="ReceiptNoted, once there is one"),
    Column("is_relayed", Boolean, nullable=False, comment="the receipt is in the log"),
    Column("is_folded", Boolean, nullable=False, comment="the receipt came back from the log"),
    Column("result_uid", BYTE_TEXT, nullable=False),
    Column("result_version", BigInteger, nullable=False),
    Column(
        "sighted_version",
        BigInteger,
        comment="resourceVersion that the API had when the log had not shown the write for a while; 0: gone",
    ),
    _time("sighted_at"),
    _partial("intents_open", "due_at", where="state IN ('pending', 'claimed')"),
    _partial("intents_claimed", "target", where="state = 'claimed'", unique=True),
    _partial("intents_unsettled", "target", where="state IN ('pending', 'claimed', 'written')"),
    _partial("intents_applied", "target", "decided_at", "round", "ordinal", where="verb = 'apply'"),
    _partial("intents_unrelayed", where="receipt IS NOT NULL AND NOT is_relayed"),
    Index("intents_parent", "scope", "view", "parent", "round"),
)

decisions = Table(
    "decisions",
    metadata,
    Column(
        "ordinal",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
        comment="order in which they were written; for one level, that in which they were made",
    ),
    Column("scope", Integer, nullable=False),
    Column("view", BYTE_TEXT, nullable=False),
    Column("parent", BYTE_TEXT, nullable=False),
    Column("parent_uid", BYTE_TEXT, nullable=False),
    Column("parent_sequence", BigInteger, nullable=False),
    Column("cause", BigInteger, nullable=False, comment="sequence of the newest record that led to it"),
    Column("causes", BYTE_TEXT, nullable=False, comment="as in wakeups"),
    Column("suppressed", BYTE_TEXT, nullable=False, comment="as in levels, since the decision before"),
    Column("is_called", Boolean, nullable=False, comment="the view was called; else only the status is another"),
    Column("reads", Json, nullable=False, comment="[[index, key, sequence that changed it, what it held or null], …]"),
    Column("status", BYTE_TEXT, nullable=False, comment="of the level after it"),
    Column("reason", BYTE_TEXT, nullable=False),
    Column("round", Integer, nullable=False),
    Column("desired", Json),
    Column("actual", Json),
    Column("drift", Json, comment="{missing, extra, changed: [key, …]}"),
    Column("intents", Json, nullable=False, comment="idempotency keys"),
    Column("fingerprint", BYTE_TEXT, nullable=False),
    _time("decided_at", nullable=False),
    Column("snapshot", BigInteger, nullable=False, comment="sum of the partitions' sequences: orders what was seen"),
    Column("basis", Json, nullable=False, comment="what it rests on besides parent and reads, to be replayed"),
    Index("decisions_parent", "scope", "parent", "view", "ordinal"),
    comment="levels that were evaluated, or got another status",
)
