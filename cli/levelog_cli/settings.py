"""All settings, each with a flag and a variable of the same name; the flag wins."""

import re
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from levelog_base.errors import ConfigurationError


class LogFormat(StrEnum):
    """The form of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OnOff(StrEnum):
    """A switch."""

    ON = "on"
    OFF = "off"


def _option(text: str, metavar: str = " ", *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, metavar=metavar, rich_help_panel="Settings", show_default=False, **more)


_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # as Kubernetes names one: RFC 1123
_PATTERN: Final = re.compile(r"!?[-a-z0-9*?]{1,63}")


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of one command; what the command does not take has its default, which for a text is the empty one."""

    nats_url: Annotated[str, _option("NATS with JetStream; several with commas between.", "URL")] = ""
    nats_credentials: Annotated[Path | None, _option("Credentials for NATS, in a file as nsc writes it.", "FILE")] = (
        None
    )
    nats_nkey_file: Annotated[Path | None, _option("Seed of the nkey to log in to NATS with.", "FILE")] = None
    nats_ca_file: Annotated[Path | None, _option("CA certificates to check that of NATS against.", "FILE")] = None
    nats_cert_file: Annotated[Path | None, _option("Client certificate to show to NATS.", "FILE")] = None
    nats_key_file: Annotated[Path | None, _option("Private key of the client certificate.", "FILE")] = None
    database_url: Annotated[str, _option("postgresql://USER:PASSWORD@HOST/DATABASE", "URL")] = ""
    shared_database: Annotated[
        bool,
        _option("Let a new application into a database that holds others, which trust it.", " ", "--shared-database"),
    ] = False
    application: Annotated[str, _option("Name of the application; default: that of the first operator.", "NAME")] = ""
    cluster: Annotated[str, _option("uid of kube-system; needed if NATS holds the logs of several.", "UID")] = ""
    data_dir: Annotated[Path, _option("Folder of the embedded NATS and SQLite; default: .levelog", "DIR")] = Path(
        ".levelog"
    )
    redaction_key_file: Annotated[
        Path | None, _option("Key under which secret values are replaced in the log.", "FILE")
    ] = None
    redact: Annotated[
        list[str],
        _option("RESOURCE:PATH, annotation:NAME or env:NAME, !env:NAME; several with commas between.", "RULE"),
    ] = []
    redaction: Annotated[OnOff, _option("on or off; off records secret values as they are; default: on")] = OnOff.ON
    log_replicas: Annotated[
        int, _option("Servers of NATS that keep the log; default: all, up to three.", "NUMBER", min=0, max=5)
    ] = 0
    threads: Annotated[
        int, _option("Threads for reconcile functions that are not async; default: 32", "NUMBER", min=1)
    ] = 32
    check_purity: Annotated[
        bool,
        _option("Refuse I/O of views, index functions and filters; dev and replay always do.", " ", "--check-purity"),
    ] = False
    dry_run: Annotated[
        bool, _option("Show what would be written to the cluster, and write nothing there.", " ", "--dry-run")
    ] = False
    requests: Annotated[int, _option("Writes at once to the Kubernetes API; default: 32", "NUMBER", min=1)] = 32
    group_requests: Annotated[int, _option("Writes at once to one API group; default: 24", "NUMBER", min=1)] = 24
    namespace: Annotated[
        list[str] | None, _option("Watch this namespace only, or team-* or !kube-*; with commas, or repeated.", "NAME")
    ] = None
    events_from: Annotated[
        str, _option("Where new functions under @op.on.event begin: a sequence, a time, or 15m.", "MOMENT")
    ] = ""
    max_backoff: Annotated[
        float,
        _option("Most seconds between two attempts of what keeps failing; default: 960", "NUMBER", min=1, max=1e7),
    ] = 960.0
    kubeconfig: Annotated[
        str, _option("Access to the cluster; default: in-cluster, or ~/.kube/config", "FILE", envvar="KUBECONFIG")
    ] = ""
    context: Annotated[str, _option("Context in the kubeconfig; default: its current one.", "NAME")] = ""
    listen: Annotated[str, _option("Serve probes and metrics there; default: nowhere.", "HOST:PORT")] = ""
    log_format: Annotated[LogFormat, _option("text or json; default: text", "FORMAT")] = LogFormat.TEXT
    log_level: Annotated[LogLevel, _option("debug, info, warning or error; default: info", "LEVEL")] = LogLevel.INFO
    debug: Annotated[bool, _option("Show the traceback of what ends the command.", " ", "--debug")] = False

    def check(self) -> None:
        """Raises ConfigurationError for a namespace that is none, and no pattern of some, and a number out of bounds.

        The command line keeps bounds by itself, a program that embeds levelog does not.
        """
        for name, option in OPTIONS.items():
            if option.min is not None and not option.min <= getattr(self, name) <= (option.max or inf):
                most = f" and at most {option.max:g}" if option.max else ""
                raise ConfigurationError(f"{flag(name)} {getattr(self, name)}: has to be at least {option.min}{most}")
        for name in self.namespaces:
            is_pattern = set(name) & {"*", "?", "!"}
            if not (_PATTERN if is_pattern else _NAMESPACE).fullmatch(name):
                raise ConfigurationError(
                    f"{flag('namespace')}: {name!r} is no name of a namespace, and no pattern: patterns are as in "
                    "'team-*', 'team-?', and '!team-test' for all but one"
                )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names and patterns of those that are watched, sorted; none for all."""
        given = (name.strip() for one in self.namespace or () for name in one.split(","))
        return tuple(sorted({name for name in given if name}))

    def required(self, name: str, why: str) -> str:
        """The value of a setting that the command cannot do without.

        Raises ConfigurationError naming its flag and its variable.
        """
        value = getattr(self, name)
        if not value:
            raise ConfigurationError(f"{why}: give {flag(name)} or set {variable(name)}")
        return str(value)


NATS: Final = (
    "nats_url",
    "nats_credentials",
    "nats_nkey_file",
    "nats_ca_file",
    "nats_cert_file",
    "nats_key_file",
)
"""Settings of everything that connects to NATS."""
DECIDING: Final = ("data_dir", "application", "cluster", "redaction_key_file", "redact", "redaction", "threads")
"""Settings of commands that decide again on what was recorded."""


def flag(name: str) -> str:
    """The name of a setting on the command line."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return str(OPTIONS[name].envvar)


def misspelt(environment: Iterable[str]) -> list[str]:
    """Hints about variables that are almost those of settings, and so have no effect."""
    known = {option.envvar for option in OPTIONS.values()}
    unknown = sorted(name for name in environment if name.startswith(_PREFIX) and name not in known)
    if not unknown:
        return []
    from difflib import get_close_matches  # noqa: PLC0415 - loaded by nobody who writes what there is

    meant = [(name, get_close_matches(name, known, n=1, cutoff=_ALIKE)) for name in unknown]
    return [f"{name} is no setting; did you mean {alike[0]}?" for name, alike in meant if alike]


def _with_variable(name: str, option: Any) -> Any:
    option.envvar = option.envvar or f"{_PREFIX}{name.upper()}"
    return option


_PREFIX: Final = "LEVELOG_"
_ALIKE: Final = 0.9
"""Kubernetes sets variables for Services, such as `LEVELOG_NATS_PORT` for levelog-nats: they differ by more."""
LOGS: Final = ("log_format", "log_level", "debug")
_HINTS: Final = get_type_hints(Settings, include_extras=True)
TYPES: Final = {name: get_args(hint)[0] for name, hint in _HINTS.items()}
OPTIONS: Final = {name: _with_variable(name, get_args(hint)[1]) for name, hint in _HINTS.items()}
DEFAULTS: Final = {field.name: [] if field.default is NODEFAULT else field.default for field in fields(Settings)}
