"""The cluster: whether it answers, to whom, and what that user may do there."""

import difflib
from collections.abc import AsyncIterator, Sequence

from levelog.errors import LevelogError
from levelog.resources import ResourceType
from levelog_cli.compose.application import LoadedApplication
from levelog_cli.compose.clusters import connect_cluster, identify
from levelog_cli.compose.doctor.findings import Finding
from levelog_cli.compose.permissions import WRITES, Permission, on, refused, to_read, who_am_i
from levelog_cli.settings import Settings
from levelog_kube.client import KubeClient
from levelog_kube.discovery import resolve, served_in, versions_of

_API, _RESOURCE, _RIGHTS = "cluster", "resource", "permissions"


async def examine_cluster(
    settings: Settings, application: LoadedApplication | None, *, has_files: bool
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
            async for finding in _examine_resources(client, application, settings.namespace):
                yield finding
        except LevelogError as error:
            yield Finding.wrong(_RIGHTS, error)


async def _examine_resources(
    client: KubeClient, application: LoadedApplication, namespace: str
) -> AsyncIterator[Finding]:
    program = application.program
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
        yield _reads(name, await refused(client, to_read([resource], namespace)))
    declared = {r for o in program.operators for handler in o.reconcilers.values() for r in handler.writes}
    touched = {r for o in program.operators if o.reconcilers for r in o.resources().values()}
    for resource in sorted(touched, key=lambda r: (r.group, r.plural)):
        yield _writes(resource, await _unwritable(client, resource, namespace), is_certain=resource in declared)


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


async def _unwritable(client: KubeClient, resource: ResourceType, namespace: str) -> list[Permission]:
    return await refused(client, on(resource, WRITES, namespace))


def _reads(name: str, missing: Sequence[Permission]) -> Finding:
    if missing:
        return Finding.wrong(_RIGHTS, f"may not {_listed(missing)}", "grant the verbs with a ClusterRole or a Role")
    return Finding.ok(_RIGHTS, f"may list and watch {name}")


def _writes(resource: ResourceType, missing: Sequence[Permission], *, is_certain: bool) -> Finding:
    name = str(resource.group_resource)
    if not missing:
        return Finding.ok(_RIGHTS, f"may {', '.join(WRITES)} {name}")
    text = f"may not {_listed(missing)}"
    if is_certain:
        return Finding.wrong(_RIGHTS, text, "grant the verbs with a ClusterRole or a Role")
    return Finding.note(_RIGHTS, text, "grant it if a reconcile function writes such objects")


def _listed(permissions: Sequence[Permission]) -> str:
    return ", nor ".join(map(str, permissions))
