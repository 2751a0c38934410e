"""Checks of the cluster: whether it answers, as whom, and which rights that user has."""

from collections.abc import AsyncIterator, Sequence

from levelog.resources import ResourceType
from levelog_base.errors import LevelogError
from levelog_cli.checks.findings import Finding
from levelog_cli.loading import LoadedApplication
from levelog_cli.servers.clusters import connect_cluster, identify
from levelog_cli.servers.permissions import (
    NeededPermission,
    ordered,
    refused,
    statuses,
    to_read,
    to_write,
    undeclared,
    who_am_i,
)
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_kube.client import KubeClient
from levelog_kube.discovery import absence_of, resolve
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
        elif resource.scope not in ("", served.scope):
            yield Finding.wrong(
                _RESOURCE,
                f"{name} has {'' if served.namespaced else 'no '}namespaces, its class says otherwise",
                f'class {resource.kind}(…, scope="{served.scope}")',
            )
        elif resource.scope and served.kind != resource.kind:
            yield Finding.wrong(
                _RESOURCE,
                f"{name} is of kind {served.kind}, its class says {resource.kind}",
                f'class {resource.kind}(…, kind="{served.kind}")',
            )
        elif resource.group_resource in statuses(program) and not served.has_status:
            yield Finding.wrong(
                _RESOURCE,
                f"{name} is served in version {resource.version} without a subresource for the status that is written",
                "declare `subresources: {status: {}}` in its CustomResourceDefinition (`levelog crd` does)",
            )
        else:
            yield Finding.ok(_RESOURCE, f"{name} is served in version {resource.version}")


async def _examine_rights(
    client: KubeClient, program: Program, namespaces: Sequence[str], role: Role | None
) -> AsyncIterator[Finding]:
    """The permissions that the processes need at the API, or those of the given role."""
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
            mend = f'@op.reconcile({handler.view.name}, writes={{CLASS: ["apply", …]}}), or writes={{}} for calls alone'
            yield Finding.note(_RIGHTS, text, mend)


async def _unserved(client: KubeClient, resource: ResourceType) -> Finding:
    found = await absence_of(client, resource.group, resource.version, resource.plural, resource.kind)
    mend = "install its CustomResourceDefinition (`levelog crd`), or mend its class; until then levelog waits for it"
    for field in ("plural", "version"):
        if meant := getattr(found, field):
            mend = f'class {resource.kind}(…, {field}="{meant}")'
    return Finding.wrong(_RESOURCE, found.text, mend)
