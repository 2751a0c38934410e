"""Ingest as one task of a process."""

from collections.abc import Callable
from typing import Final

from levelog.secrets.redaction import Redactor
from levelog_cli.loading import LoadedApplication
from levelog_cli.printing.progress import FirstLists
from levelog_cli.settings import LogFormat, Settings
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import Progress, WatchedResource
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
    *,
    on_begin: Callable[[Ingest], None],
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

    async def run(on_change: Progress | None = None) -> None:
        begun = Ingest(
            client, stream, watched, redactor, sources=sources, on_change=on_change, application=application.name
        )
        on_begin(begun)
        await begun.run()

    if not FirstLists.is_wanted() or settings.log_format is LogFormat.JSON:
        await run()
        return
    with FirstLists([str(each.resource) for each in watched] + list(application.program.sources)) as lists:
        await run(lists)
