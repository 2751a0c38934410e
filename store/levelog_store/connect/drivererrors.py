"""Translates the database drivers' errors into levelog's."""

import os
from asyncio import CancelledError
from ssl import SSLCertVerificationError, SSLError
from typing import Final

from sqlalchemy import event
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from levelog.absence import Absence
from levelog_base.errors import ConfigurationError, LevelogError, RowRefused, Unavailable
from levelog_store.connect.locations import Location

CONNECTION_ERRORS = (DBAPIError, OSError, PoolTimeoutError)
"""What opening a connection raises, time-outs included."""

NO_POOLER: Final = (
    "a connection pooler such as PgBouncer answers there; give the host and port of PostgreSQL itself, "
    "of which a process needs a few connections"
)
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_READ_ONLY: Final = "25006"
_UNKNOWN_SETTING: Final = "42704"
_TRANSIENT = (
    "08",  # connection exception
    _READ_ONLY,  # a standby, until the failover is complete
    "25P03",  # idle in transaction for too long
    "25P04",  # transaction took too long
    "40",  # transaction rollback: serialization failure, deadlock
    "53",  # insufficient resources: too many connections, disk full
    "55P03",  # lock not available
    "57",  # operator intervention: shutdown, starting up, statement canceled
    "58",  # system error
)
_ENDING: Final = ("08", "57P")  # connection exception; the server shuts down, crashes or starts up
_CONFIGURATION = {
    "26000": NO_POOLER,  # a statement is not prepared
    "28": "the user or the password is refused",
    "3D000": "the server has no such database",
    "3F": "the schema is not there",
    "42501": "the user may not do this",
    "42P01": "a table is missing: run `levelog migrate`",
    "42703": "a column is missing: run `levelog migrate`",
    "42P05": NO_POOLER,  # a statement is prepared already
    "42P07": "something else has that name: give levelog another schema, database or --application",
}
_CONTENDED: Final = "intents_claimed"
"""The constraint that two transactions break together which claim for one target at one moment: one goes first."""
_OF_A_ROW: Final = "22"  # data exception: a NUL in a text, a number out of range
_NOT_ENCODED: Final = (UnicodeEncodeError, OverflowError)
"""What drivers raise for a value that they cannot send."""
_OF_ANOTHER_NAME: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""
_TLS_FILES: Final = ("sslrootcert", "sslcrl", "sslcert", "sslkey")
_SQLITE_CONFIGURATION = (
    "unable to open database file",
    "file is not a database",
    "database disk image is malformed",
    "no such table",
    "no such column",
    "attempt to write a readonly database",
)
_SQLITE_TRANSIENT = (
    "database is locked",
    "disk is full",
    "disk i/o error",
    "connection closed",
    "no active connection",
)


def translate_errors(engine: Engine, location: Location, absence: Absence) -> None:
    """Let the engine's statements and commits raise levelog's errors; defects stay SQLAlchemy's."""

    def failed(context: ExceptionContext) -> LevelogError | None:
        error = translated(context)
        if isinstance(error, Unavailable):
            is_ending = state_of(context.original_exception).startswith(_ENDING)
            if context.is_disconnect or context.connection is None or is_ending:
                absence.began(error)
            absence.covers(error)
        return error

    def translated(context: ExceptionContext) -> LevelogError | None:
        error = context.original_exception
        if isinstance(error, LevelogError) or not isinstance(error, Exception):
            return None  # said already, or a task that is cancelled
        if isinstance(error, TimeoutError):
            # The statement may still run, and its answer come when the next one is awaited: not to be used again.
            context.is_disconnect = True
            return Unavailable(f"database {location.name} did not answer in time")
        if context.connection is None:
            return translate_refusal(location, error)
        if state_of(error) == _READ_ONLY:
            context.is_disconnect = True  # a new connection may lead to the server that has taken over
        if state_of(error).startswith(_OF_A_ROW) or isinstance(_inner(error), _NOT_ENCODED):
            return RowRefused(f"database {location.name} does not take a value: {_words(error).partition(': ')[0]}")
        return translate(location, error, "did not do as told", is_disconnect=context.is_disconnect)

    event.listen(engine, "handle_error", failed, retval=True)


def translate_refusal(location: Location, error: Exception) -> LevelogError:
    """The error that callers know for a connection that could not be made."""
    step = "cannot be reached"
    if meaning := _refused_by_tls(location, _inner(error)):
        return ConfigurationError(f"database {location.name} {step}: {meaning}")
    words = _words(error)
    if "target attribute" in words:
        return Unavailable(f"database {location.name} {step}: no host of the URL is a primary, which can be written to")
    if "startup parameter" in words:
        return ConfigurationError(f"database {location.name} {step}: {words}: {NO_POOLER}")
    if state_of(error) == _UNKNOWN_SETTING and not any(name in words for name in location.url.query):
        words += ": levelog needs PostgreSQL 12 or newer"
    return translate(location, error, step) or ConfigurationError(f"database {location.name} {step}: {words}")


def _refused_by_tls(location: Location, error: BaseException) -> str:
    """What to change, where a certificate or one of its files is why; else empty."""
    if isinstance(error, SSLCertVerificationError):
        if error.verify_code in _OF_ANOTHER_NAME:
            return (
                f"its certificate is not for this host ({error.verify_message}): use the name that it has, or "
                "sslmode=verify-ca in the URL, if the authority signs nothing else"
            )
        return (
            f"its certificate is not trusted ({error.verify_message}): "
            "name the file of its authority by ?sslrootcert=FILE in the URL"
        )
    if not isinstance(error, SSLError | FileNotFoundError | PermissionError):
        return ""
    files = {name: str(location.url.query[name]) for name in _TLS_FILES if name in location.url.query}
    for name, file in files.items():
        if not os.access(file, os.R_OK):
            return f"{name}={file}, as the URL has it, cannot be read"
    if isinstance(error, SSLError) and files:
        return (
            f"TLS fails ({_words(error)}): look at {', '.join(f'{n}={file}' for n, file in files.items())} in the URL"
        )
    return ""


def translate(
    location: Location, error: BaseException, step: str, *, is_disconnect: bool = False
) -> LevelogError | None:
    """The error that callers know; None for a defect. `step` completes "database NAME …"."""
    words = _words(error)
    inner = _inner(error)
    state = state_of(error)
    for start, meaning in _CONFIGURATION.items():
        if state.startswith(start):
            return ConfigurationError(f"database {location.name} {step}: {meaning} ({words})")
    lowered = words.lower()
    if location.path is not None and any(part in lowered for part in _SQLITE_CONFIGURATION):
        return ConfigurationError(f"database {location.name} {step}: {words}")
    if getattr(inner, "constraint_name", None) == _CONTENDED:
        return Unavailable(f"database {location.name}: another process is claiming a write to the same target")
    is_transient = is_disconnect or isinstance(inner, OSError | PoolTimeoutError) or state.startswith(_TRANSIENT)
    if is_transient or (location.path is not None and any(part in lowered for part in _SQLITE_TRANSIENT)):
        return Unavailable(f"database {location.name} {step}: {words}")
    return None


def state_of(error: BaseException) -> str:
    """SQLSTATE of a server's error; empty for others."""
    return str(getattr(_inner(error), "sqlstate", None) or "")


def _inner(error: BaseException) -> BaseException:
    """The driver's error; SQLAlchemy's own message repeats the statement with its parameters."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    if error.__cause__ is None or isinstance(error.__cause__, CancelledError):  # of a time-out
        return error
    return error.__cause__


def _words(error: BaseException) -> str:
    inner = _inner(error)
    return " ".join(str(inner).split()) or ("it takes too long" if isinstance(inner, TimeoutError) else repr(inner))
