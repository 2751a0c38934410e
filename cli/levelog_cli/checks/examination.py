"""What the doctor checks, in the order in which an application needs it."""

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from levelog_base.errors import LevelogError
from levelog_cli.checks.apichecks import examine_cluster
from levelog_cli.checks.findings import Finding, Found, finding_plain, print_finding
from levelog_cli.checks.serverchecks import examine_database, examine_nats
from levelog_cli.loading import LoadedApplication
from levelog_cli.printing.lines import print_json
from levelog_cli.settings import Settings
from levelog_cli.wiring.expanding import load_for_cluster
from levelog_cli.wiring.roles import EVERYTHING, Role


async def examine(settings: Settings, files: Sequence[Path], role: Role | None = None, *, as_json: bool) -> bool:
    """Print what is found, each as soon as it is known; tells whether nothing is wrong."""
    is_well = True
    async for finding in _findings(settings, files, role):
        if as_json:
            print_json(finding_plain(finding))
            sys.stdout.flush()
        else:
            print_finding(finding)
        is_well = is_well and finding.found is not Found.WRONG
    return is_well


async def _findings(settings: Settings, files: Sequence[Path], role: Role | None) -> AsyncIterator[Finding]:
    application: LoadedApplication | None = None
    if files:
        try:
            application = await load_for_cluster(settings, files, frozenset([role]) if role else EVERYTHING)
        except LevelogError as error:
            yield Finding.wrong("operators", error)
        else:
            resources = ", ".join(application.program.resources)
            yield Finding.ok("operators", f"application {application.name}, which reads {resources}")
    cluster = None
    if role is Role.PROCESS:
        yield Finding.ok("cluster", "not asked: a processor has no access to it")
    else:
        async for finding in examine_cluster(settings, application, role, has_files=bool(files)):
            yield finding
            cluster = cluster or finding.cluster
    async for finding in examine_nats(settings, cluster, application):
        yield finding
    async for finding in examine_database(settings):
        yield finding
