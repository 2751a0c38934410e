"""The cluster: whether it answers, to whom, and what that user may do there."""

import difflib
from collections.abc import AsyncIterator, Sequence

from levelog.errors import LevelogError
from levelog.resources import ResourceType
from levelog_cli.checks.findings import Finding
from levelog_cli.loading import LoadedApplication
from levelog_cli.servers.clusters import connect_cluster, identify
from levelog_cli.servers.permissions import NeededPermission, ordered, refused, to_read, to_write, undeclared, who_am_i
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_kube.client import KubeClient
from levelog_kube.discovery import resolve, served_in, versions_of
from levelog_processors.program import Program

_API, _RESOURCE, _RIGHTS = "cluster", "resource", "permissions"


async def examine_cluster(
    settings: Settings, application: LoadedApplication | None, role: Role | None, *, has_files: bool
) -> AsyncIterator[Finding]:
    """Look at the API server and, if there are operators, at all that they read and write there."""
    try:
        client = await connect_cluster(settings)
    except LevelogError as error:
        yield Finding.wrong(_API, error)
        return
    async with client:
        try:
            version: dict[str, str] = (await client.request("GET", "/version")).decode(dict[str, str])
            user = await who_am_i(client)
            yield Finding.ok(_API, f"{client.server}, Kubernetes {version.get('gitVersion', '?')}, as {user}")
            cluster = await identify(client, settings)
            yield Finding.ok(_API, f"its identity is {cluster}", cluster=cluster)
        except LevelogError as error:
            yield Finding.wrong(_API, error)
            return
        if application is None:
            why, mend = ("operators", "levelog doctor FILE") if not has_files else ("operators that load", "see above")
            yield Finding.note(_RIGHTS, f"not checked without {why}", mend)
            return
        try:
            async for finding in _examine_resources(client, application.program):
                yield finding
            async for finding in _examine_rights(client, application.program, settings.namespaces, role):
                yield finding
        except LevelogError as error:
            yield Finding.wrong(_RIGHTS, error)


async def _examine_resources(client: KubeClient, program: Program) -> AsyncIterator[Finding]:
    for name, resource in program.resources.items():
        served = await resolve(client, resource.group, resource.version, resource.plural)
        if served is None:
            yield await _unserved(client, resource)
        elif served.namespaced != (resource.scope == "Namespaced"):
            is_ = "has namespaces" if served.namespaced else "has no namespaces"
            yield Finding.wrong(
                _RESOURCE,
                f"{name} {is_}, its class says otherwise",
                f'class {resource.kind}(…, scope="{"Namespaced" if served.namespaced else "Cluster"}")',
            )
        elif served.kind != resource.kind:
            yield Finding.wrong(
                _RESOURCE,
                f"{name} is of kind {served.kind}, its class says {resource.kind}",
                f'class {resource.kind}(…, kind="{served.kind}")',
            )
        else:
            yield Finding.ok(_RESOURCE, f"{name} is served in version {resource.version}")


async def _examine_rights(
    client: KubeClient, program: Program, namespaces: Sequence[str], role: Role | None
) -> AsyncIterator[Finding]:
    """What the processes need at the API, or the one whose role is given."""
    needs: list[NeededPermission] = []
    if role in (None, Role.INGEST):
        needs += to_read(program.resources.values(), namespaces)
    if role in (None, Role.ACTUATE):
        needs += to_write(program, namespaces)
    missing = set(await refused(client, needs))
    for place in sorted({need.permission.place for need in needs}):
        wanted = ordered({need.permission for need in needs if need.permission.place == place})
        if lacking := [permission for permission in wanted if permission in missing]:
            text = f"may not {', nor '.join(map(str, lacking))}"
            yield Finding.wrong(_RIGHTS, text, "grant it with the roles that `levelog rbac` prints")
        else:
            yield Finding.ok(_RIGHTS, f"may {', '.join(dict.fromkeys(p.verb for p in wanted))} {place}")
    if role in (None, Role.ACTUATE):
        for handler in undeclared(program):
            text = f"what {handler.name} writes is not known, so that rights for it are not checked"
            yield Finding.note(_RIGHTS, text, f'@op.reconcile({handler.view.name}, writes={{CLASS: ["apply", …]}})')


async def _unserved(client: KubeClient, resource: ResourceType) -> Finding:
    """What the class may have meant: a resource named like it, or another version."""
    text = f"the cluster does not serve {resource.group_resource} in version {resource.version}"
    beside = await served_in(client, resource.group, resource.version)
    named = [each.plural for each in beside if each.kind.lower() in (resource.kind.lower(), resource.plural)]
    alike = named or difflib.get_close_matches(resource.plural, [each.plural for each in beside], n=1)
    if alike:
        meant = f'class {resource.kind}(…, plural="{alike[0]}")'
        return Finding.wrong(_RESOURCE, f'{text}; did you mean "{alike[0]}"?', meant)
    for version in await versions_of(client, resource.group):
        if await resolve(client, resource.group, version, resource.plural) is not None:
            meant = f'class {resource.kind}(…, version="{version}")'
            return Finding.wrong(_RESOURCE, f"{text}, but in version {version}", meant)
    return Finding.wrong(
        _RESOURCE, text, "install its CustomResourceDefinition, or mend its class; until then levelog waits for it"
    )
