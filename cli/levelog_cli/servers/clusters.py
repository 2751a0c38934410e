"""The cluster behind a kubeconfig: which one it is, and whether it may be watched and written."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from levelog_base.errors import IdentityMismatch
from levelog_base.wire.objects import Cluster
from levelog_cli.servers.permissions import refusal, refused, require, to_identify, to_read, to_write
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_kube.client import KubeClient
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_processors.program import Program

log = logging.getLogger(__name__)


async def connect_cluster(settings: Settings) -> KubeClient:
    """Connect to the API that the settings name. Raises ConfigurationError, Unavailable."""
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    return await connect_kube(kubeconfig, settings.context or None)


async def identify(client: KubeClient, settings: Settings) -> Cluster:
    """The cluster behind an API. Raises IdentityMismatch if the settings name another one."""
    await require(client, to_identify())
    cluster = await cluster_uid(client)
    if settings.cluster not in ("", cluster):
        raise IdentityMismatch(f"{client.server} is cluster {cluster}, not {settings.cluster} as --cluster says")
    return cluster


@asynccontextmanager
async def known_cluster(
    settings: Settings, program: Program, roles: frozenset[Role]
) -> AsyncGenerator[tuple[KubeClient, Cluster]]:
    """A client and the identity of its cluster, once that may be watched as the program needs it.

    What may not be written is logged: the rest can go on, and what is missing fails the levels that need it.
    """
    async with await connect_cluster(settings) as client:
        cluster = await identify(client, settings)
        if Role.INGEST in roles:
            await require(client, to_read(program.resources.values(), settings.namespaces))
        if Role.ACTUATE in roles and (missing := await refused(client, to_write(program, settings.namespaces))):
            log.warning("intents will fail: %s", await refusal(client, missing))
        yield client, cluster
