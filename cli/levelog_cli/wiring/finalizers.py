"""`levelog remove-finalizers`: the finalizers of operators, off all objects before these are uninstalled."""

import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from levelog.escapes import escaped
from levelog.handlers.finalizing import PREFIX
from levelog.resources import ResourceType
from levelog_actuator.requests import path_of
from levelog_base.errors import LevelogError
from levelog_base.wire.objects import ObjectKey
from levelog_cli.printing.lines import print_line
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_cli.wiring.expanding import load_for_cluster
from levelog_ingest.namespaces import has_patterns, is_matched
from levelog_ingest.sync import list_pages
from levelog_kube.client import KubeClient
from levelog_kube.discovery import resolve
from levelog_kube.requestfailures import ApiError

_ATTEMPTS: Final = 5
"""For one object, which others may change between a look and a write."""


class _Metadata(Struct):
    name: str
    uid: str
    resourceVersion: str  # noqa: N815 - as the API spells it
    namespace: str = ""
    finalizers: list[str] = []


class _Holder(Struct):
    """The part of an object that counts here."""

    metadata: _Metadata

    def held(self, finalizers: Sequence[str]) -> list[str]:
        """Those of the finalizers that it has."""
        return [each for each in finalizers if each in self.metadata.finalizers]


async def remove_finalizers(
    settings: Settings, files: Sequence[Path], others: Sequence[str] = (), *, is_dry: bool
) -> bool:
    """Remove the finalizers of the operators in the files, or `others`, from the objects that they read; prints each.

    Returns whether all of them are removed. Raises ApiError for a resource that may not be listed, and as
    `load_operators`.
    """
    program = (await load_for_cluster(settings, files)).program
    finalizers = [*others] or [PREFIX + operator.name for operator in program.operators]
    found = failed = 0
    async with await connect_cluster(settings) as client:
        for resource in program.resources.values():
            for holder in await _holders(client, resource, settings.namespaces, finalizers):
                found += 1
                held = holder.held(finalizers)
                key = resource.key(holder.metadata.namespace, holder.metadata.name)
                try:
                    if not is_dry:
                        await _patch(client, resource, key, holder, finalizers)
                    said = "would be removed" if is_dry else "removed"
                    print_line(f"{key}: {', '.join(held)} {said}")
                except LevelogError as error:
                    failed += 1
                    said = f"{key}: cannot remove {', '.join(held)}: {error}"
                    sys.stderr.write(f"{escaped(said)}\n")
    names = " or ".join(finalizers)
    done = f"{found} objects have {names}" if is_dry else f"{names} removed from {found - failed} of {found} objects"
    print_line(done)
    return not failed


async def _holders(
    client: KubeClient, resource: ResourceType, namespaces: Sequence[str], finalizers: Sequence[str]
) -> list[_Holder]:
    """All objects of a resource that have one of the finalizers; none, and a word on stderr, where it is not served.

    The list is complete before the first write: the server keeps its history for some minutes only.
    """
    served = await resolve(client, resource.group, resource.version, resource.plural)
    if served is None:
        sys.stderr.write(f"{resource.group_resource} is not served in {resource.api_version}: there are no objects\n")
        return []
    is_everywhere = not namespaces or not served.namespaced or has_patterns(namespaces)
    found: list[_Holder] = []
    for namespace in ("",) if is_everywhere else namespaces:
        async for page in list_pages(client, served.collection(namespace)):
            every = (msgspec.json.decode(item, type=_Holder) for item in page.items)
            found += [
                each
                for each in every
                if each.held(finalizers) and (not served.namespaced or is_matched(each.metadata.namespace, namespaces))
            ]
    return found


async def _patch(
    client: KubeClient, resource: ResourceType, key: ObjectKey, holder: _Holder, finalizers: Sequence[str]
) -> None:
    """Remove finalizers from an object; one that is gone has none. Raises as `KubeClient.request`."""
    path, found = path_of(key, resource.api_version), holder
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            now = found.metadata
            kept = [each for each in now.finalizers if each not in finalizers]
            if kept == now.finalizers or now.uid != holder.metadata.uid:
                return
            body = msgspec.json.encode({"metadata": {"resourceVersion": now.resourceVersion, "finalizers": kept}})
            try:
                await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT or attempt == _ATTEMPTS:
                    raise
                found = (await client.request("GET", path)).decode(_Holder)
            else:
                return
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
