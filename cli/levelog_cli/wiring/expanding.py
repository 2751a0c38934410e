"""Applications with handlers of kinds that only a cluster can tell: it is asked once, before the program is made."""

import logging
from collections.abc import Sequence
from pathlib import Path

from levelog.kinds import ServedKind, expand
from levelog.operator import Operator
from levelog.resources import ResourceType, Scope
from levelog_cli.loading import LoadedApplication, application_of, load_operators
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import EVERYTHING, Role

log = logging.getLogger(__name__)


async def load_for_cluster(
    settings: Settings, files: Sequence[Path], roles: frozenset[Role] = EVERYTHING
) -> LoadedApplication:
    """Load the operators, with handlers for what the cluster serves now.

    Only all roles together ask it: each process of a role would have kinds of its own. Raises as `load_application`,
    for a cluster that does not answer, and for open selectors in a part.
    """
    operators = load_operators(files)
    if roles != EVERYTHING:
        return application_of(settings, operators)
    return await application_for_cluster(settings, operators)


async def application_for_cluster(settings: Settings, operators: Sequence[Operator]) -> LoadedApplication:
    """The application of operators, as `load_for_cluster` has it."""
    if selectors := [each for operator in operators for each in operator.open_selectors]:
        kinds = await _watchable(settings)
        kinds = [kind for kind in kinds if any(selector.takes(kind) for selector in selectors)]
        DataDir(settings.data_dir).keep_kinds(kinds)
        for shown, count in expand(operators, kinds).items():
            log.log(logging.INFO if count else logging.WARNING, "%s: %s kinds that are served now", shown, count)
    return application_of(settings, operators)


async def _watchable(settings: Settings) -> list[ServedKind]:
    """Kinds that the cluster serves, and that may be listed and watched there; the rest is logged."""
    # Only for files that have such handlers: the client takes long to load.
    from levelog_cli.servers.clusters import connect_cluster  # noqa: PLC0415
    from levelog_cli.servers.permissions import refused, to_read  # noqa: PLC0415
    from levelog_kube.discovery import watchable_kinds  # noqa: PLC0415

    async with await connect_cluster(settings) as client:
        kinds = await watchable_kinds(client)
        denied = {each.place for each in await refused(client, to_read(map(_type_of, kinds), settings.namespaces))}
    if left := sorted(kind.name for kind in kinds if kind.name in denied):
        log.warning("left out, as this account may not list and watch them: %s", ", ".join(left))
    return [kind for kind in kinds if kind.name not in denied]


def _type_of(kind: ServedKind) -> ResourceType:
    scope: Scope = "Namespaced" if kind.namespaced else "Cluster"
    return ResourceType(group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind, scope=scope)
