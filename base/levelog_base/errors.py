"""The errors of levelog, one tree.

    LevelogError
    ├── ConfigurationError       fix the command, the file or the environment; exit status 2
    │   ├── OperatorError        fix the operator file: a handler, a type, a name
    │   └── MigrationRequired    run `levelog migrate`
    ├── Unavailable              a server does not answer; retried with backoff
    │   ├── HistoryInDoubt       the log seems to have lost history; asked again until that is sure
    │   └── CommitsLost          a database forgot what it had committed; begin again from what it holds
    ├── IdentityMismatch         a stream, database or cluster is not the one expected; give up before writing
    │   └── HistoryLost          the log lacks what was not read yet, or was rolled back; fold what is left anew
    ├── ChildRefused             a manifest cannot be a child of its parent; shown as the level's reason
    ├── HookFailed               a start-up hook raised or hung; the process ends before it did anything
    ├── RowRefused               a database does not take a row, whatever is tried; nothing was committed
    ├── LeaseLost                another processor owns the partition; drop the work, nothing was committed
    ├── DaemonLost               another process may have the daemon's claim; end, nothing was stored
    ├── ObjectTooLarge           an object does not fit into the log; its readers wait until it is smaller
    ├── TooManyEntries           an object has more entries than its index allows; those who read it wait, or go on
    └── RecordError              one record cannot be read; it is logged and skipped for its key alone

Every message names the object and the step that failed, and is raised from its cause.
"""


class LevelogError(Exception):
    """The base of all errors that levelog raises on purpose."""

    is_told = False
    """The process has logged already that the server behind it is away."""


class ConfigurationError(LevelogError):
    """The command, a file or the environment has to be changed; retrying does not help."""


class OperatorError(ConfigurationError):
    """The operator file has a mistake: a handler, a type or a name."""


class MigrationRequired(ConfigurationError):
    """The database is at another revision than this code."""


class Unavailable(LevelogError):
    """A server does not answer now; the same call may succeed later."""


class CommitsLost(Unavailable):
    """A database has lost commits of this process; the state in memory is ahead of it and is dropped."""


class HistoryInDoubt(Unavailable):
    """The log seems to have lost what was read, as it also does to a server that is cut off; asked again."""


class IdentityMismatch(LevelogError):
    """A stream, a database or a cluster is another one than the state was built from."""


class HistoryLost(IdentityMismatch):
    """The log does not continue from what was read: records expired unread, or it was restored from a backup."""


class ChildRefused(LevelogError):
    """A manifest that a children function returned cannot be a child of its parent."""


class LeaseLost(LevelogError):
    """Another processor owns the partition now, so the transaction was rolled back."""


class DaemonLost(LevelogError):
    """Another process may run the daemon now, so that this one's state is not stored."""


class RowRefused(LevelogError):
    """A database does not take a value, whatever is tried; nothing of the transaction was committed."""


class HookFailed(LevelogError):
    """A start-up hook did not do what the operator needs before it can begin."""


class ObjectTooLarge(LevelogError):
    """An object is recorded by its metadata alone, so that nothing can be computed from it."""


class TooManyEntries(LevelogError):
    """An index function gives more entries for one object than the index allows."""


class RecordError(LevelogError):
    """One record of the log cannot be read."""


def cannot_listen(who: str, where: object, error: OSError) -> ConfigurationError:
    """The error of a server whose address cannot be had."""
    return ConfigurationError(f"{who} cannot listen at {where}: {error.strerror or error}")
