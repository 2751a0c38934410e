"""Ingest as one task of a process, and whether what it would record agrees with how the log records it."""

import asyncio
from collections.abc import Sequence
from typing import Final

from levelog.errors import ConfigurationError
from levelog.resources import ResourceType
from levelog.secrets.redaction import Redactor
from levelog.wire.records import SyncFinished, SyncStarted
from levelog.wire.subjects import Control, control_subjects
from levelog_cli.loading import LoadedApplication
from levelog_cli.printing.progress import FirstLists
from levelog_cli.settings import LogFormat, Settings
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import WatchedResource
from levelog_kube.client import KubeClient
from levelog_log.stream import LogStream

INGEST: Final = "ingest"
"""What one process of an application does at a time."""


async def ingest(
    settings: Settings, application: LoadedApplication, client: KubeClient, stream: LogStream, redactor: Redactor
) -> None:
    """Watch what the program reads until cancelled; on a terminal, show how far the first lists are."""
    watched = [
        WatchedResource(
            resource=resource.group_resource,
            version=resource.version,
            namespaces=settings.namespaces if resource.scope == "Namespaced" else (),
        )
        for resource in application.program.resources.values()
    ]
    sources = list(application.program.sources.values())
    if not FirstLists.is_wanted() or settings.log_format is LogFormat.JSON:
        await Ingest(client, stream, watched, redactor, sources=sources, application=application.name).run()
        return
    with FirstLists([str(each.resource) for each in watched] + list(application.program.sources)) as lists:
        await Ingest(
            client, stream, watched, redactor, sources=sources, on_change=lists, application=application.name
        ).run()


async def refuse_disagreement(
    stream: LogStream, application: LoadedApplication, namespaces: Sequence[str] | None
) -> None:
    """Raise ConfigurationError, naming both sides, for a resource that is recorded in another API version.

    `namespaces` are those that this process is going to watch, None if it watches nothing: where another application
    watches others of a resource, what one lists would delete what the other holds. Raises Unavailable.
    """
    resources = application.program.resources.values()
    await asyncio.gather(*(_compare(stream, application.name, resource, namespaces) for resource in resources))


async def _compare(
    stream: LogStream, application: str, resource: ResourceType, namespaces: Sequence[str] | None
) -> None:
    found = await stream.last_record(control_subjects(stream.cluster, Control.SYNC, resource.group_resource))
    if found is None or not isinstance(found.record, SyncStarted | SyncFinished):
        return
    last = found.record
    name, other = resource.group_resource, f"application {last.application}"
    if last.api_version not in ("", resource.api_version):
        raise ConfigurationError(
            f"{other} records {name} in version {last.api_version}, {resource.kind} of application {application} "
            f"declares {resource.api_version}: declare the version that is recorded, or remove the stream "
            f"{stream.name} on {stream.connection.url} to begin a new log"
        )
    if last.application in ("", application) or namespaces is None or resource.scope != "Namespaced":
        return
    if last.namespaces != tuple(namespaces):
        raise ConfigurationError(
            f"{other} records {name} of {_shown(last.namespaces)}, application {application} would record "
            f"{_shown(namespaces)}: let both watch the same namespaces, or give each a log of its own"
        )


def _shown(namespaces: Sequence[str]) -> str:
    return f"namespaces {', '.join(namespaces)}" if namespaces else "all namespaces"
