"""One process of an application, with what it is connected to."""

import os
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster
from levelog_cli.loading import LoadedApplication
from levelog_cli.monitoring.monitor import Monitor
from levelog_cli.printing.bars import Bars
from levelog_cli.servers.backing import Backing
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_log.transport.connection import Connection

if TYPE_CHECKING:
    from levelog_kube.client import KubeClient
    from levelog_processors.processor import Processor
    from levelog_store.connect.database import Database


class WiredProcess(Struct, frozen=True, kw_only=True):
    """What the roles of one process share."""

    settings: Settings
    application: LoadedApplication
    roles: frozenset[Role]
    backing: Backing
    connection: Connection
    redactor: Redactor
    client: "KubeClient | None"
    cluster: Cluster | None
    database: "Database | None"
    on_processor: "Callable[[Processor], None] | None"
    monitor: Monitor
    bars: Bars


def process_name(token: str = "") -> str:
    """Host, process id and a random part: a pid is used again, and pods of one name come and go.

    With the token of a database, others see in PostgreSQL whether the process is there.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{token or secrets.token_hex(4)}"
