"""Ingest in a process: its watches, or its place behind the process that has them."""

from levelog_cli.printing.bars import FirstLists
from levelog_cli.wiring.process import WiredProcess, process_name
from levelog_cli.wiring.roles import Role
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import WatchedResource
from levelog_kube.client import KubeClient
from levelog_log.leadership import Leadership
from levelog_log.stream import LogStream


async def ingest(process: WiredProcess, client: KubeClient, stream: LogStream) -> None:
    """Watch, or stand by for another process of the application that does; nobody shares an embedded NATS."""
    program = process.application.program
    watched = [
        WatchedResource(
            resource=resource.group_resource,
            version=resource.version,
            namespaces=() if resource.scope == "Cluster" else process.settings.namespaces,
            kind=resource.kind,
            scope=resource.scope or None,
        )
        for resource in program.resources.values()
    ]
    names = [str(each.resource) for each in watched] + list(program.sources)
    leadership = None
    if process.backing.nats is None:
        leadership = Leadership(stream, process.application.name, Role.INGEST, holder=process_name())

    async def watch() -> None:
        begun = Ingest(
            client,
            stream,
            watched,
            process.redactor,
            sources=list(program.sources.values()),
            # with it, objects are counted first
            on_change=FirstLists(process.bars, names) if process.bars.are_wanted else None,
            application=process.application.name,
        )
        process.monitor.ingest(begun, leadership)
        await begun.run()

    if leadership is None:
        await watch()
    else:
        process.monitor.watch(Role.INGEST)  # it stands by
        await leadership.lead(watch)
