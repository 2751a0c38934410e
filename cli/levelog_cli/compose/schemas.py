"""Schemas of the custom resources whose records are exported, as the cluster has them now."""

import sys
from collections.abc import Iterable

from msgspec import Raw

from levelog.errors import IdentityMismatch, LevelogError
from levelog.resources import is_external
from levelog.wire.objects import Cluster, GroupResource
from levelog_cli.compose.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.definitions import schemas_of
from levelog_kube.discovery import cluster_uid


async def read_schemas(settings: Settings, cluster: Cluster, resources: Iterable[str]) -> dict[str, dict[str, Raw]]:
    """By resource and version; without access to the cluster of the log none, and stderr says why."""
    found: dict[str, dict[str, Raw]] = {}
    parsed = (GroupResource.parse(name) for name in sorted(resources))
    try:
        async with await connect_cluster(settings) as client:
            if (other := await cluster_uid(client)) != cluster:
                raise IdentityMismatch(f"the API server at {client.server} is cluster {other}, the log is of {cluster}")
            for resource in parsed:
                if not is_external(resource) and (schemas := await schemas_of(client, resource)):
                    found[str(resource)] = schemas
    except LevelogError as error:
        sys.stderr.write(f"schemas of custom resources are not in it: {' '.join(str(error).split())}\n")
    return found
