"""What one process of an application does."""

from enum import StrEnum
from typing import Final

from levelog_cli.settings import Settings


class Role(StrEnum):
    """A part of the way from a change to a write."""

    INGEST = "ingest"
    PROCESS = "process"
    ACTUATE = "actuate"


EVERYTHING: Final = frozenset(Role)


def needs_cluster(roles: frozenset[Role]) -> bool:
    """Whether the Kubernetes API is asked."""
    return Role.INGEST in roles or Role.ACTUATE in roles


def needs_sql(roles: frozenset[Role]) -> bool:
    """Whether the tables are used."""
    return Role.PROCESS in roles or Role.ACTUATE in roles


def shown(roles: frozenset[Role]) -> str:
    """The command that does it."""
    return "levelog run" if roles == EVERYTHING else f"levelog {'+'.join(sorted(roles))}"


def refuse_missing(settings: Settings, roles: frozenset[Role]) -> None:
    """Raise ConfigurationError, naming flag and variable, if a process is not told where what it shares is."""
    if roles == EVERYTHING:
        return  # what is not given is embedded
    settings.required("nats_url", f"{shown(roles)} shares the log with other processes")
    if needs_sql(roles):
        settings.required("database_url", f"{shown(roles)} shares the database with other processes")
