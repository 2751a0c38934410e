"""The servers behind the processes of an application, given by URL or embedded, and the key for redaction."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.embedded import EmbeddedNats
from levelog_cli.settings import OnOff, Settings, flag, variable

log = logging.getLogger(__name__)


class Backing(Struct, frozen=True, kw_only=True):
    """The addresses of the log and the tables."""

    nats_url: str
    database_url: str
    data: DataDir | None = None
    """Set if one of the two is embedded."""
    nats: EmbeddedNats | None = None

    @property
    def has_own_database(self) -> bool:
        """Whether the tables are in the data directory, where nobody but levelog keeps their revision."""
        return self.data is not None and self.database_url == self.data.database_url


@asynccontextmanager
async def embedded_backing(settings: Settings) -> AsyncGenerator[Backing]:
    """Connect to the servers given by URL, and embed the others, while the context is open."""
    if settings.nats_url and settings.database_url:
        yield Backing(nats_url=settings.nats_url, database_url=settings.database_url)
        return
    data = DataDir(settings.data_dir)
    with data.claim() as lock:
        log.info("keeps its data in %s", data.shown)
        database_url = settings.database_url or data.database_url
        if settings.nats_url:
            yield Backing(nats_url=settings.nats_url, database_url=database_url, data=data)
            return
        async with EmbeddedNats(data, lock) as nats:
            yield Backing(nats_url=nats.url, database_url=database_url, data=data, nats=nats)


def load_redactor(settings: Settings, backing: Backing) -> Redactor:
    """Redact by the rules that are given, with the key of the file that was given, else the data directory's own.

    Raises ConfigurationError if a rule says nothing, the file cannot be read, or there is no key.
    """
    if settings.redaction is OnOff.OFF:
        log.warning(
            "redaction is off: Secrets and everything else are recorded as they are, for anyone who can read the log"
        )
        return Redactor(is_off=True)
    file = settings.redaction_key_file
    if file is None and backing.data is not None:
        file = backing.data.redaction_key_file()
    if file is None:
        raise ConfigurationError(
            "secret values (of Secrets, environment variables and so on) are recorded only as keyed hashes: give "
            f"{flag('redaction_key_file')} or set {variable('redaction_key_file')}, the same for all processes "
            f"(a new key: openssl rand -hex 32 > redaction.key), or say {flag('redaction')} off"
        )
    return Redactor.from_file(file, settings.redact)


def known_redactor(settings: Settings) -> Redactor:
    """The redactor of a command that looks back: without a key, secret values in manifests cannot be compared.

    Raises ConfigurationError as `load_redactor` does, but for a key that is not there.
    """
    if settings.redaction is OnOff.OFF:
        return Redactor(is_off=True)
    file = settings.redaction_key_file or DataDir(settings.data_dir).known_redaction_key
    return Redactor.from_file(file, settings.redact)
