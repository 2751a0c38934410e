"""Connecting to NATS as the settings say."""

from typing import Final

from levelog.errors import ConfigurationError
from levelog_cli.settings import NATS, Settings, flag
from levelog_log.access import NatsAccess
from levelog_log.connection import INBOX, Connection, connect

_FILES: Final = NATS[1:]


async def connect_nats(settings: Settings, url: str, command: str) -> Connection:
    """Connect to a server that is given, or to the embedded one of that URL; raises as `connect` does.

    Answers come to subjects that begin with the command, `_INBOX.levelog-ingest`, so that a server can let each user
    listen to its own only.
    """
    inbox = f"{INBOX}.{command.replace(' ', '-').replace('+', '-')}"
    return await connect(url, name=command, access=_access(settings), inbox=inbox)


def _access(settings: Settings) -> NatsAccess:
    given = [flag(name) for name in _FILES if getattr(settings, name) is not None]
    if given and not settings.nats_url:
        raise ConfigurationError(f"{', '.join(given)} without --nats-url: the embedded nats-server needs none")
    return NatsAccess(
        credentials_file=settings.nats_credentials,
        nkey_file=settings.nats_nkey_file,
        ca_file=settings.nats_ca_file,
        cert_file=settings.nats_cert_file,
        key_file=settings.nats_key_file,
    )
