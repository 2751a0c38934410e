"""The tables, as SQLAlchemy Core defines them; the first revision creates them.

Every key begins with the scope: one number for a cluster and an application. Objects are named by their key as text,
`webs.example.com/default/shop`, so that any table can be read by eye.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, SmallInteger, Table, text
from sqlalchemy.schema import SchemaItem

from levelog_store.dialects import BYTE_TEXT, Json, Timestamp

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def _key(name: str, kind: Any = BYTE_TEXT) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _value(name: str, kind: Any = BYTE_TEXT, **options: Any) -> Column[Any]:
    return Column(name, kind, nullable=False, **options)


def _time(name: str, *, nullable: bool = True) -> Column[Any]:
    return Column(name, Timestamp, nullable=nullable)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows for which the condition holds, as both dialects write it."""
    condition = text(where)
    return Index(name, "scope", *columns, unique=unique, postgresql_where=condition, sqlite_where=condition)


def _table(name: str, *parts: SchemaItem, comment: str | None = None) -> Table:
    return Table(name, metadata, _key("scope", Integer), *parts, comment=comment)


scopes = Table(
    "scopes",
    metadata,
    Column("scope", Integer, primary_key=True, autoincrement=True),
    _value("cluster"),
    _value("application"),
    _value("partitions", SmallInteger),
    _value("fingerprint", comment="code that may commit"),
    _value("stream_created", comment="identity of the stream that was folded"),
    _value("resets", Integer, comment="how often all that was folded was deleted"),
    _time("calls_recorded_at"),
    Index("scopes_cluster_application", "cluster", "application", unique=True),
)

checkpoints = _table(
    "checkpoints",
    _key("partition", SmallInteger),
    _value("sequence", BigInteger, comment="last record folded, as levels and intents are"),
    _value("mirrored", BigInteger, server_default="0", comment="last record folded, as objects and entries are"),
    _value("record_id", comment="id of the last record folded of this partition"),
    _value("record_sequence", BigInteger, comment="its sequence"),
    _value("commits", BigInteger, server_default="0", comment="that moved it, or decided without"),
    _time("time"),
)

leases = _table(
    "leases",
    _key("partition", SmallInteger),
    _value("epoch", BigInteger, comment="raised by each change of owner or code"),
    _value("owner", comment="processor; empty: free"),
    _time("expires_at"),
)

processors = _table(
    "processors",
    _key("owner"),
    _time("joined_at", nullable=False),
    _time("expires_at", nullable=False),
)

actuators = _table(
    "actuators",
    _key("owner"),
    _time("expires_at", nullable=False),
    comment="until when each counts as alive; then others take its claims",
)

handlers = _table(
    "handlers",
    _key("kind"),
    _key("name"),
    _value("fingerprint"),
    _value("resource", comment="of the objects that it is given"),
    _value("reads", Json, comment="names of the indices that a view may read"),
    comment="indices, views and reconcile functions of the code that may commit",
)

backfills = _table(
    "backfills",
    _key("name"),
    _key("partition", SmallInteger),
    _value("kind", comment="index: entries are computed anew; view: all levels; reconcile: those that are not in sync"),
    _value("resource"),
)

syncs = _table(
    "syncs",
    _key("partition", SmallInteger),
    _key("resource"),
    _value("unfinished", comment="lists under way, and where each began"),
    _value("started_sequence", BigInteger, comment="of the list that began last"),
    _value("finished_sequence", BigInteger, comment="0: no list was ever complete"),
    _value("namespaces", comment="that are listed and watched; empty: all"),
    _value("api_version", comment="in which it is recorded; empty: nobody says"),
    _value("version", BigInteger, comment="resourceVersion of the last complete list"),
    _value("gap_sequence", BigInteger, comment="of the last note that history is missing; 0: none"),
    _time("heard_at"),
    _value("error", comment="why nothing is heard of the resource now; empty: it is"),
)

objects = _table(
    "objects",
    _key("object"),
    _value("partition", SmallInteger),
    _value("resource"),
    _value("namespace"),
    _value("name"),
    _value("uid"),
    _value("version", BigInteger),
    _value("sequence", BigInteger),
    _value("is_deleting", Boolean, comment="has a deletionTimestamp"),
    Column("manager", BYTE_TEXT, comment="field manager that wrote it last"),
    _time("recorded_at"),
    _value("body", Json),
    Index("objects_resource", "scope", "resource", "partition"),
)

tombstones = _table(
    "tombstones",
    _key("object"),
    _value("partition", SmallInteger),
    _value("uid"),
    _value("version", BigInteger, comment="records up to this version are late"),
    _value("sequence", BigInteger),
)

unreadable = _table(
    "unreadable",
    _key("partition", SmallInteger),
    _key("place"),
    _value("sequence", BigInteger, comment="of the last record there that cannot be read"),
    _value("error"),
    _time("recorded_at", nullable=False),
    comment="records that were skipped; a place is an object, else a resource or the subject of a control record",
)

call_positions = _table(
    "call_positions",
    _key("handler"),
    _key("partition", SmallInteger),
    _value(
        "position",
        BigInteger,
        comment="up to here all is called, but for what is held: a sequence, or of a timer microseconds since 1970",
    ),
    comment="how far each handler is whose calls leave no records",
)

index_entries = _table(
    "index_entries",
    _key("index"),
    _key("key"),
    _key("object"),
    _key("ordinal", SmallInteger),
    _value("value", Json),
    _value("error", comment="why the entry is stale; empty: it is not"),
    _time("expires_at"),
    Index("index_entries_object", "scope", "object", "index"),
)

key_versions = _table(
    "key_versions",
    _key("index"),
    _key("key"),
    _value("version", BigInteger, comment="sequence that changed the key last; 0: none yet"),
)

levels = _table(
    "levels",
    _key("view"),
    _key("parent"),
    _value("partition", SmallInteger),
    _value("parent_uid"),
    _value("status"),
    _value("reason"),
    Column("desired", Json),
    Column("actual", Json),
    Column("drift", Json),
    _value("round", Integer, comment="reconcile calls, ever"),
    _value("attempts", Integer, comment="rounds since inputs changed last"),
    _value("evaluations", Integer),
    _value("inputs", comment="digest of what the view saw of its parent"),
    Column("fields_read", Json, comment="[[how, step, …], …]: places in a parent that the view takes as plain JSON"),
    _value("reads_digest", comment="of what the keys read held"),
    _value("versions_digest", server_default="", comment="of the sequences that changed them"),
    _value("decided_inputs", comment="digest of parent and keys at the last round"),
    Column("repeats", BYTE_TEXT, comment="rounds in a row that wrote for one and the same state, as JSON"),
    _value("cause", BigInteger, comment="sequence of the newest record that led to the evaluation"),
    _value(
        "suppressed",
        server_default="",
        comment="records that asked since the last decision, and changed nothing that the view reads",
    ),
    _time("recheck_at"),
    _time("evaluated_at"),
    _time("decided_at"),
    _time("since"),
    Column("position", BigInteger, comment="of a call without records, as in call_positions; null: it is a level"),
    Index("levels_parent", "scope", "parent"),
    Index("levels_status", "scope", "status", "since"),
    Index("levels_partition", "scope", "partition", "view"),
    comment="levels, and objects whose calls leave no records and fail, or have not returned",
)

dependencies = _table(
    "dependencies",
    _key("view"),
    _key("parent"),
    _key("index"),
    _key("key"),
    _value("partition", SmallInteger, comment="of the parent"),
    Index("dependencies_key", "scope", "index", "key"),
)

wakeups = _table(
    "wakeups",
    _key("view"),
    _key("parent"),
    _value("partition", SmallInteger, comment="of the parent"),
    _value("cause", BigInteger, comment="sequence of the newest record that asks for it"),
    _value(
        "causes",
        server_default="",
        comment="12,15,17: all records that ask, the first ones if there are many; empty: its time, or a person",
    ),
    _value("generation", BigInteger, comment="drawn anew by each request"),
    _time("due_at"),
    _partial("wakeups_fresh", "cause", "view", "parent", where="due_at IS NULL"),
    _partial("wakeups_due", "due_at", where="due_at IS NOT NULL"),
)

intents = _table(
    "intents",
    _key("key"),
    _value("view"),
    _value("parent"),
    _value("parent_uid"),
    _value("partition", SmallInteger, comment="of the parent"),
    _value("round", Integer),
    _value("ordinal", Integer, comment="order within the round"),
    _value("verb"),
    _value("target"),
    _value("api_version"),
    _value("kind"),
    _value("target_uid", comment="incarnation that the decision saw; empty: none"),
    _value("target_version", BigInteger, comment="resourceVersion that the decision saw; 0: none"),
    _value("is_watched", Boolean, comment="the target's resource is read by the operator"),
    _value("body", Json, comment="redacted, if something in it had to be"),
    Column("sealed", LargeBinary, comment="the body as it is to be sent, encrypted, where it is redacted"),
    _value("options", Json),
    Column("progress", Json, comment="what a call that lasts has kept"),
    _value("state", comment="pending, claimed, written, settled, satisfied, failed, superseded"),
    _value("attempts", Integer),
    _time("due_at"),
    _value("owner", comment="actuator that claimed it"),
    _value("claim", BigInteger, server_default="0", comment="drawn anew by each claim; 0: none yet"),
    Column("expires_at", Timestamp, comment="end of the claim; without an owner, when it ended"),
    _value("error"),
    _value("outcome", comment="as the receipt has it; empty: there is none"),
    _value("cause", BigInteger),
    _time("decided_at", nullable=False),
    Column("receipt", Json, comment="ReceiptNoted, once there is one"),
    _value("is_relayed", Boolean, comment="the receipt is in the log"),
    _value("is_folded", Boolean, comment="the receipt came back from the log"),
    _value("result_uid"),
    _value("result_version", BigInteger),
    Column(
        "observed_version",
        BigInteger,
        comment="resourceVersion that the API had when the log had not shown the write for a while; 0: gone",
    ),
    _time("observed_at"),
    _partial("intents_open", "due_at", "decided_at", where="state IN ('pending', 'claimed')"),
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
    _value("scope", Integer),
    _value("view"),
    _value("parent"),
    _value("parent_uid"),
    _value("parent_sequence", BigInteger),
    _value("cause", BigInteger, comment="sequence of the newest record that led to it"),
    _value("causes", comment="as in wakeups"),
    _value("suppressed", comment="as in levels, since the decision before"),
    _value("is_called", Boolean, comment="the view was called; else only the status is another"),
    _value("reads", Json, comment="[[index, key, sequence that changed it, what it held or null], …]"),
    _value("status", comment="of the level after it"),
    _value("reason"),
    _value("round", Integer),
    Column("desired", Json),
    Column("actual", Json),
    Column("drift", Json, comment="{missing, extra, changed: [key, …]}"),
    _value("intents", Json, comment="idempotency keys"),
    _value("fingerprint"),
    _time("decided_at", nullable=False),
    _value("snapshot", BigInteger, comment="sum of the partitions' sequences: orders what was seen"),
    _value("basis", Json, comment="what it rests on besides parent and reads, to be replayed"),
    Index("decisions_parent", "scope", "parent", "view", "ordinal"),
    comment="levels that were evaluated, or got another status",
)

INPUTS: Final = "inputs"
"""SQL view of the resources that an application reads."""
RESERVED: Final = frozenset({*metadata.tables, "alembic_version", INPUTS})
"""Names that no SQL view of an index or a view may have."""
