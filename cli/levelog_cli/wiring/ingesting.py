"""Ingest as one task of a process."""

from collections.abc import Callable
from typing import Final

from levelog.secrets.redaction import Redactor
from levelog_cli.loading import LoadedApplication
from levelog_cli.printing.progress import Bars, FirstLists
from levelog_cli.settings import Settings
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import WatchedResource
from levelog_kube.client import KubeClient
from levelog_log.stream import LogStream

INGEST: Final = "ingest"
"""What one process of an application does at a time."""


async def ingest(
    settings: Settings,
    application: LoadedApplication,
    client: KubeClient,
    stream: LogStream,
    redactor: Redactor,
    bars: Bars,
    *,
    on_begin: Callable[[Ingest], None],
) -> None:
    """Watch what the program reads until cancelled; the bars show how far the first lists are."""
    watched = [
        WatchedResource(
            resource=resource.group_resource,
            version=resource.version,
            namespaces=() if resource.scope == "Cluster" else settings.namespaces,
            kind=resource.kind,
            scope=resource.scope or None,
        )
        for resource in application.program.resources.values()
    ]
    sources = list(application.program.sources.values())
    names = [str(each.resource) for each in watched] + list(application.program.sources)
    begun = Ingest(
        client,
        stream,
        watched,
        redactor,
        sources=sources,
        on_change=FirstLists(bars, names) if bars.are_wanted else None,  # with one, objects are counted first
        application=application.name,
    )
    on_begin(begun)
    await begun.run()
