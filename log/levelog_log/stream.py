"""The stream that is one cluster's log: settings, identity, and look-ups of single records."""

import logging
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError, IdentityMismatch, LevelogError, Unavailable
from levelog_base.secrets.redaction import difference
from levelog_base.wire.envelope import ENVELOPE_VERSION, can_read
from levelog_base.wire.objects import Cluster, Partition, Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_base.wire.subjects import DEFAULT_PARTITIONS, lease_stream, partition_in, stream_name, stream_subjects
from levelog_log.doubts import Doubts
from levelog_log.messages import MessageWriter, logged_record, timestamp_nanoseconds
from levelog_log.replicas import MOST, TOO_FEW, raise_replicas
from levelog_log.transport.connection import Connection, NoResponders
from levelog_log.transport.jetstream import (
    NO_MESSAGE,
    NO_STREAM,
    Group,
    MessageAnswer,
    MessageRequest,
    StreamAnswer,
    StreamConfig,
    StreamNames,
    StreamState,
    ask_again,
    nanoseconds,
    refusal,
)
from levelog_log.transport.wire import parse_header_lines

log = logging.getLogger(__name__)

DEFAULT_MAX_AGE: Final = timedelta(days=7)
_CLUSTER: Final = "levelog-cluster"
_PARTITIONS: Final = "levelog-partitions"
_ENVELOPE: Final = "levelog-envelope"
_REDACTION: Final = "levelog-redaction"


class StreamIdentity(Struct, frozen=True, kw_only=True):
    """Tells a stream from one of the same name that was made later: positions in the two do not compare."""

    name: str
    created: str
    """Time of creation as the server wrote it, to the nanosecond."""


_BEGINNING: Final = Sequence(0)


class LogStream:
    """The log of a cluster on a connection; made by `ensure_stream` or `open_stream`."""

    def __init__(self, connection: Connection, cluster: Cluster, answer: StreamAnswer) -> None:
        self.connection = connection
        self.cluster = cluster
        self.name = stream_name(cluster)
        self.identity = StreamIdentity(name=self.name, created=answer.created)
        self.partitions = int(answer.config.metadata[_PARTITIONS])
        self.ended_at = Sequence(answer.state.last_seq)
        """Sequence of its last record when it was opened."""
        self.redaction = answer.config.metadata.get(_REDACTION, "")
        """Digest of the key and the rules that it was begun with; empty if none is noted."""
        self.max_age = _age(answer.config)
        """How long a record is kept; zero for ever. As of the start, or of the last `verify`."""
        self.keep_on(answer.config.num_replicas)

    def keep_on(self, replicas: int) -> None:
        """Note how many servers keep the stream."""
        self.replicas = replicas
        self.doubts = Doubts(replicas)
        """Signs of losses that do not count yet."""

    def require_redaction(self, digest: str) -> None:
        """Raises ConfigurationError if the log was begun with another redaction, so that values would not compare.

        A log in which none is noted is taken as it is.
        """
        if how := difference(self.redaction, digest):
            raise ConfigurationError(
                f"the log {self.name} was begun {how}: all processes need the same --redaction-key-file, --redact and "
                "--redaction. To change them, stop all processes and remove the stream: the next ingest begins anew"
            )

    def writer(self, source: str) -> MessageWriter:
        """A writer of messages for this log; `source` names the part of levelog that writes."""
        return MessageWriter(self.cluster, self.partitions, source, lambda: self.connection.max_payload_bytes)

    async def state(self) -> StreamState:
        """First and last sequence and sizes, as of now.

        Raises IdentityMismatch if the stream is gone or another one than this was opened on; Unavailable.
        """
        return (await self._answer()).state

    async def group(self) -> Group | None:
        """The servers that keep it, as its leader sees them; None for a server on its own. Raises as `state` does."""
        group = (await self._answer()).cluster
        return group if group is not None and group.name else None

    async def verify(self) -> None:
        """Check that the settings are those that levelog needs; raises as `state` does, and ConfigurationError."""
        answer = await self._answer()
        differences = _differences(answer.config, self.cluster)
        if (partitions := answer.config.metadata.get(_PARTITIONS)) != str(self.partitions):
            differences.append(f"{partitions} partitions, and {self.partitions} before")
        _refuse(self.connection, self.cluster, differences)
        self.max_age = _age(answer.config)

    async def _answer(self) -> StreamAnswer:
        answer = await _info(self.connection, self.name)
        if answer is None:
            raise self._gone()
        if answer.created != self.identity.created:
            error = IdentityMismatch(
                f"stream {self.name} on NATS at {self.connection.url} was made anew at {answer.created}; "
                f"the one in use was made at {self.identity.created}"
            )
            raise self.doubts.loss("gone", 0, error)
        self.doubts.dispel("gone")
        return answer

    def _gone(self) -> LevelogError:
        return self.doubts.loss(
            "gone", 0, IdentityMismatch(f"stream {self.name} is gone from NATS at {self.connection.url}")
        )

    async def last_sequence(self) -> Sequence:
        """Sequence of the last record, 0 in an empty stream; raises as `state` does."""
        return Sequence((await self.state()).last_seq)

    async def last_record(self, subject: str) -> LoggedRecord | None:
        """The last record of a subject, which may hold wildcards; None if there is none. Raises Unavailable."""
        return await self._fetch(MessageRequest(last_by_subj=subject))

    async def record_at(self, sequence: Sequence) -> LoggedRecord | None:
        """The record at a position; None if it has expired or was never written. Raises Unavailable."""
        return await self._fetch(MessageRequest(seq=sequence)) if sequence > 0 else None

    async def position_before(self, time: datetime) -> Sequence:
        """Sequence up to which all records are from before a time, as they say; raises as `state` does."""
        state = await self.state()
        low, high = max(state.first_seq, 1), state.last_seq + 1
        while low < high:
            middle = (low + high) // 2
            found = await self._fetch(MessageRequest(seq=middle, next_by_subj=stream_subjects(self.cluster)))
            if found is None or found.record.time >= time:
                high = middle
            else:
                low = found.sequence + 1
        return Sequence(low - 1)

    async def records_of(self, subject: str, *, after: Sequence = _BEGINNING) -> AsyncGenerator[LoggedRecord]:
        """The records of a subject, in order, one request each: for subjects with few. Raises Unavailable."""
        sequence = after
        while found := await self._fetch(MessageRequest(seq=sequence + 1, next_by_subj=subject)):
            yield found
            sequence = found.sequence

    async def _fetch(self, request: MessageRequest) -> LoggedRecord | None:
        subject = f"STREAM.MSG.GET.{self.name}"
        answer = await ask_again(self.connection, subject, request, MessageAnswer)
        if answer.error is not None and answer.error.err_code == NO_MESSAGE:
            return None
        if answer.error is not None and answer.error.err_code == NO_STREAM:
            raise self._gone()
        if answer.error is not None:
            raise refusal(f"JetStream {subject}", answer.error)
        if (message := answer.message) is None:
            raise Unavailable(f"{subject}: no message")
        return logged_record(
            message.subject,
            partition_in(message.subject) or Partition(0),
            Sequence(message.seq),
            timestamp_nanoseconds(message.time),
            parse_header_lines(message.hdrs),
            message.data,
        )


async def ensure_stream(
    connection: Connection,
    cluster: Cluster,
    *,
    partitions: int | None = None,
    max_age: timedelta | None = None,
    replicas: int | None = None,
    redaction: str = "",
) -> LogStream:
    """Create the stream of a cluster, or verify the existing one.

    `redaction` is stored in a new stream: the digest of rules and key, for `LogStream.require_redaction`. None means
    the existing value, or the default: 16 partitions, 7 days. The number of replicas, of the stream of leases too, is
    raised as `raise_replicas` does. Raises ConfigurationError, naming the setting, if the existing stream differs;
    Unavailable.
    """
    found = await _info(connection, stream_name(cluster))
    if found is None:
        wanted = StreamConfig(
            name=stream_name(cluster),
            description="levelog: what happened in a Kubernetes cluster",
            subjects=(stream_subjects(cluster),),
            retention="limits",
            storage="file",
            discard="old",
            num_replicas=replicas or MOST,
            max_age=nanoseconds(DEFAULT_MAX_AGE if max_age is None else max_age),
            allow_atomic=True,
            allow_direct=True,
            deny_delete=True,
            deny_purge=True,
            metadata={
                _CLUSTER: cluster,
                _PARTITIONS: str(DEFAULT_PARTITIONS if partitions is None else partitions),
                _ENVELOPE: str(ENVELOPE_VERSION),
                **({_REDACTION: redaction} if redaction else {}),
            },
        )
        found = await _create(connection, wanted)
        if replicas is None and found.error is not None and found.error.err_code in TOO_FEW:
            found = await _create(connection, replace(wanted, num_replicas=1))
        if found.error is not None:
            raise refusal(f"creating stream {wanted.name}", found.error)
    differences = _differences(found.config, cluster)
    if partitions is not None and found.config.metadata.get(_PARTITIONS) != str(partitions):
        differences.append(f"{found.config.metadata.get(_PARTITIONS)} partitions instead of {partitions}")
    if max_age is not None and found.config.max_age != nanoseconds(max_age):
        differences.append(f"max_age of {found.config.max_age} ns instead of {nanoseconds(max_age)}")
    _refuse(connection, cluster, differences)
    stream = LogStream(connection, cluster, found)
    stream.keep_on(await raise_replicas(connection, stream.name, replicas))
    if stream.replicas > 1:
        try:
            await raise_replicas(connection, lease_stream(cluster), stream.replicas)
        except Unavailable as error:  # it may have no leader now, and who needs a lease waits for one
            log.warning("%s", error)
    return stream


async def _create(connection: Connection, wanted: StreamConfig) -> StreamAnswer:
    return await ask_again(connection, f"STREAM.CREATE.{wanted.name}", wanted, StreamAnswer)


async def open_stream(connection: Connection, cluster: Cluster) -> LogStream:
    """The stream of a cluster, verified. Raises Unavailable if ingest has not made it yet, ConfigurationError."""
    found = await find_stream(connection, cluster)
    if found is None:
        raise Unavailable(
            f"NATS at {connection.url} has no log of cluster {cluster} yet (stream {stream_name(cluster)}); "
            "`levelog ingest` makes it"
        )
    return found


async def find_stream(connection: Connection, cluster: Cluster) -> LogStream | None:
    """The stream of a cluster, verified; None if ingest has not made it yet. Raises Unavailable, ConfigurationError."""
    found = await _info(connection, stream_name(cluster))
    if found is None:
        return None
    _refuse(connection, cluster, _differences(found.config, cluster))
    return LogStream(connection, cluster, found)


async def clusters(connection: Connection) -> list[Cluster]:
    """The clusters that have a log on this NATS, sorted. Raises Unavailable."""
    found: list[Cluster] = []
    prefix = stream_name(Cluster(""))
    total, offset = 1, 0
    while offset < total:
        answer = await ask_again(connection, "STREAM.NAMES", {"offset": offset}, StreamNames)
        if answer.error is not None:
            raise refusal("listing streams", answer.error)
        names = answer.streams or []
        found += [Cluster(name.removeprefix(prefix)) for name in names if name.startswith(prefix)]
        total, offset = (answer.total, offset + len(names)) if names else (0, 0)
    return sorted(found)


def _differences(config: StreamConfig, cluster: Cluster) -> list[str]:
    differences: list[str] = []
    if config.metadata.get(_CLUSTER) != cluster:
        differences.append(f"metadata {_CLUSTER} is {config.metadata.get(_CLUSTER)!r}")
    if not can_read(config.metadata.get(_ENVELOPE, "")):
        differences.append(f"envelope version {config.metadata.get(_ENVELOPE)!r} instead of {ENVELOPE_VERSION}")
    if not config.metadata.get(_PARTITIONS, "").isdigit():
        differences.append(f"metadata {_PARTITIONS} is {config.metadata.get(_PARTITIONS)!r}")
    if config.subjects != (stream_subjects(cluster),):
        differences.append(f"subjects {list(config.subjects)}")
    if (config.storage, config.retention) != ("file", "limits"):
        differences.append(f"storage {config.storage} and retention {config.retention} instead of file and limits")
    if not config.allow_atomic:
        differences.append("no atomic batches (allow_atomic)")
    if config.no_ack:
        differences.append("no acknowledgements (no_ack)")
    if config.max_msg_size >= 0:
        differences.append("a limit of the size of messages (max_msg_size), besides that of the server (max_payload)")
    if config.subject_transform is not None:
        differences.append("other subjects than were written (subject_transform)")
    if config.sources:
        differences.append("records of other streams (sources)")
    limits = (config.max_msgs, config.max_msgs_per_subject)
    if any(limit > 0 for limit in limits):
        differences.append("a limit of messages, which removes history out of turn")
    return differences


def _refuse(connection: Connection, cluster: Cluster, differences: list[str]) -> None:
    if differences:
        raise ConfigurationError(
            f"stream {stream_name(cluster)} on NATS at {connection.url} is not as levelog needs it: "
            f"{'; '.join(differences)}. Mend it with `nats stream edit`, or remove it to begin a new log"
        )


def _age(config: StreamConfig) -> timedelta:
    return timedelta(microseconds=config.max_age // 1000)


async def _info(connection: Connection, name: str) -> StreamAnswer | None:
    try:
        answer = await ask_again(connection, f"STREAM.INFO.{name}", None, StreamAnswer)
    except NoResponders as error:
        raise Unavailable(f"stream {name}: JetStream does not answer on NATS at {connection.url}") from error
    if answer.error is None:
        if answer.cluster is not None and not answer.cluster.leader:
            raise Unavailable(
                f"stream {name} has no leader on NATS at {connection.url}: its servers are electing one, or away"
            )
        return answer
    if answer.error.err_code == NO_STREAM:
        return None
    raise refusal(f"asking for stream {name}", answer.error)
