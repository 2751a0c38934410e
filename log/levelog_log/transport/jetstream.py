"""Requests to the JetStream API and its answers, with fields that nats-py does not know."""

from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from levelog_base.errors import ConfigurationError, LevelogError, Unavailable
from levelog_log.transport.connection import REQUEST_TIMEOUT, Connection

A = TypeVar("A")

# Error codes of nats-server, from its errors.json.
NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059
DUPLICATE: Final = 10201
"""A batch with a message id that the stream has, or is about to store."""
_CONFIGURATION: Final = frozenset(
    {
        10003,  # bad request: a server that is too old for what is asked
        10025,  # invalid JSON: the same
        10027,  # most streams of the account
        10052,  # invalid configuration of a stream
        10054,  # message larger than the stream takes
        10058,  # a stream of that name with another configuration
        10061,  # replicas cannot be changed
        10065,  # subjects of another stream
        10074,  # replicas without a cluster
        10109,  # sealed stream
        10174,  # atomic batches are disabled
        10177,  # a header that atomic batches do not take
        10185,  # API level of a newer server
    }
)
"""Error codes that no retry mends. The HTTP status does not tell: a batch that a new leader has not seen is a 400."""


class ErrorAnswer(Struct, frozen=True):
    """Why JetStream refused."""

    err_code: int = 0
    description: str = ""


class StreamConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a stream that matter here, with the defaults of NATS; durations in nanoseconds."""

    name: str
    subjects: tuple[str, ...] = ()
    description: str = ""
    retention: str = "limits"
    storage: str = "file"
    discard: str = "old"
    num_replicas: int = 1
    max_age: int = 0
    duplicate_window: int = 0
    max_msgs: int = -1
    max_bytes: int = -1
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    no_ack: bool = False
    subject_transform: dict[str, str] | None = None
    sources: tuple[dict[str, Any], ...] | None = None
    allow_atomic: bool = False
    allow_direct: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    metadata: dict[str, str] = {}


class StreamState(Struct, frozen=True):
    """What a stream holds."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0

    @property
    def missing(self) -> int:
        """How many messages between the first and the last are not there any more."""
        return self.last_seq - self.first_seq + 1 - self.messages if self.messages else 0


class Peer(Struct, frozen=True):
    """A server that keeps a stream and does not lead it."""

    name: str = ""
    active: int = 0
    """Nanoseconds since the leader heard of it; a follower answers every second."""
    lag: int = 0
    """Records that it has still to store."""


class Group(Struct, frozen=True):
    """The servers that keep a stream together."""

    name: str = ""
    """Name of the cluster; empty: the server is on its own."""
    leader: str = ""
    """Empty: the server knows of none, and answers from its own store."""
    replicas: tuple[Peer, ...] = ()
    """All but the leader."""


class StreamAnswer(Struct, frozen=True):
    """Answer to creating a stream and to asking about one."""

    error: ErrorAnswer | None = None
    cluster: Group | None = None
    config: StreamConfig = StreamConfig(name="")
    created: str = ""
    state: StreamState = StreamState()


class StreamNames(Struct, frozen=True):
    """Answer to listing streams."""

    error: ErrorAnswer | None = None
    total: int = 0
    streams: list[str] | None = None


class MessageRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which message to fetch: by sequence, or the last one of a subject, which may hold wildcards, or the next."""

    seq: int = 0
    next_by_subj: str = ""
    """The first one from `seq` on."""
    last_by_subj: str = ""


class StoredMessage(Struct, frozen=True):
    """A message as it is stored."""

    subject: str
    seq: int
    time: str
    data: bytes = b""
    hdrs: bytes = b""


class MessageAnswer(Struct, frozen=True):
    """Answer to fetching a message."""

    error: ErrorAnswer | None = None
    message: StoredMessage | None = None


class ConsumerAnswer(Struct, frozen=True):
    """Answer to creating a consumer."""

    error: ErrorAnswer | None = None
    name: str = ""
    num_pending: int = 0


class PublishAnswer(Struct, frozen=True):
    """Acknowledgement of a message or of a batch."""

    error: ErrorAnswer | None = None
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    """The stream had the message already, at `seq`."""


async def ask(
    connection: Connection,
    subject: str,
    request: object,
    answer: type[A],
    *,
    timeout: timedelta = REQUEST_TIMEOUT,  # noqa: ASYNC109
) -> A:
    """Send one request below `$JS.API`, without content if that is None; JetStream's errors are part of the answer.

    Raises Unavailable if there is no answer, LevelogError if it cannot be read.
    """
    step, content = f"JetStream {subject}", _encoded(request)
    reply = await connection.request(f"$JS.API.{subject}", content, step=step, timeout=timeout)
    return decoded(reply, answer, step)


async def ask_again(connection: Connection, subject: str, request: object, answer: type[A]) -> A:
    """Send an idempotent request as `ask` does, again if no answer comes."""
    step = f"JetStream {subject}"
    return decoded(await connection.request_again(f"$JS.API.{subject}", _encoded(request), step=step), answer, step)


def _encoded(request: object) -> bytes:
    return b"" if request is None else msgspec.json.encode(request)


def decoded(reply: Msg, answer: type[A], step: str) -> A:
    """Decode an answer. Raises LevelogError, naming the step, if it cannot be read."""
    try:
        return msgspec.json.decode(reply.data, type=answer)
    except msgspec.DecodeError as error:
        raise LevelogError(f"{step}: the answer cannot be read: {reply.data[:200]!r}") from error


def nanoseconds(duration: timedelta) -> int:
    """A duration as JetStream takes it."""
    return int(duration / timedelta(microseconds=1)) * 1000


def refusal(step: str, error: ErrorAnswer) -> LevelogError:
    """The exception that says what JetStream refused: ConfigurationError for a setting, Unavailable for all else."""
    kind = ConfigurationError if error.err_code in _CONFIGURATION else Unavailable
    return kind(f"{step}: JetStream answered {error.description!r} (error {error.err_code})")
