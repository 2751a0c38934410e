"""Ingest as one task of a process."""

from typing import Final

from levelog.secrets.redaction import Redactor
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
            kind=resource.kind,
            scope=resource.scope,
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
