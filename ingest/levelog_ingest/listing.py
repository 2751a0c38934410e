"""Lists in pages, for API servers that do not stream them."""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from levelog.wire.objects import Version, parse_version
from levelog_kube.client import KubeClient
from levelog_kube.errors import NoAnswer

PAGE_OBJECTS: Final = 500  # as kubectl and client-go ask for


class _ListMetadata(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _List(Struct):
    metadata: _ListMetadata
    items: list[Raw] | None = None


class Page(Struct):
    """Some objects of a list, as it is at `version`."""

    items: list[Raw]
    version: Version
    remaining: int | None
    """How many objects follow, where the server says."""


async def list_pages(client: KubeClient, path: str) -> AsyncIterator[Page]:
    """All objects of a collection, all as of one version.

    Raises ApiError, with status 410 if the list took longer than the server keeps history; Unavailable.
    """
    following = ""
    while True:
        query = {"limit": str(PAGE_OBJECTS), **({"continue": following} if following else {})}
        listed = await _list(client, path, query)
        yield Page(
            items=listed.items or [],
            version=_version(path, listed),
            remaining=listed.metadata.remaining_item_count,
        )
        following = listed.metadata.continue_
        if not following:
            return


async def count_objects(client: KubeClient, path: str) -> int | None:
    """How many objects a collection has, without reading them; None where the server does not say."""
    listed = await _list(client, path, {"limit": "1"})
    remaining = listed.metadata.remaining_item_count if listed.metadata.continue_ else 0
    return None if remaining is None else remaining + len(listed.items or ())


async def _list(client: KubeClient, path: str, query: Mapping[str, str]) -> _List:
    return (await client.request("GET", path, query=query)).decode(_List)


def _version(path: str, listed: _List) -> Version:
    try:
        return parse_version(listed.metadata.resource_version)
    except ValueError as error:
        raise NoAnswer(
            f"GET {path}: the list's resourceVersion {listed.metadata.resource_version!r} is no number"
        ) from error
