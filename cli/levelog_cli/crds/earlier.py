"""The definitions that were there before, in the cluster or in a file, against those that the classes make."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.manifests import manifests_of
from levelog.wire.objects import GroupResource
from levelog_cli.crds.breaking import breaks
from levelog_cli.crds.definitions import API_VERSION, KIND
from levelog_cli.crds.schemas import Json
from levelog_cli.printing.lines import print_line, print_lines
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.discovery import definition_of


class _Version(Struct):
    name: str
    storage: bool


class _Spec(Struct):
    scope: str
    names: dict[str, Any]
    versions: list[_Version]


class _Named(Struct):
    name: str


class _Definition(Struct):
    """What the comparison needs of each."""

    metadata: _Named
    spec: _Spec


async def compare(settings: Settings, made: Sequence[Json], file: Path | None) -> bool:
    """Print what would break, a line each, and say whether nothing does.

    Without a file the definitions of the cluster count. Raises ConfigurationError, and as `KubeClient.request`.
    """
    names = [manifest["metadata"]["name"] for manifest in made]
    earlier = in_file(file) if file else await in_cluster(settings, names)
    lines: list[str] = []
    for manifest in made:
        name = manifest["metadata"]["name"]
        broken = list(breaks(earlier[name], manifest)) if name in earlier else []
        lines += [f"{name} {line}" for line in broken]
        if not broken:
            print_line(f"{name}: {'breaks nothing' if name in earlier else 'is new'}")
    lines += [f"{name}: no class defines it any more" for name in earlier if name not in names]
    print_lines(lines)
    return not lines


def in_file(file: Path) -> dict[str, Json]:
    """The definitions of a YAML file, by their names."""
    found = [one for one in manifests_of(file) if one.get("kind") == KIND]
    for one in found:
        if one.get("apiVersion", API_VERSION) != API_VERSION:
            raise ConfigurationError(
                f"definitions cannot be read from {file}: {one['apiVersion']} is not {API_VERSION}"
            )
    try:
        msgspec.convert(found, list[_Definition])
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"definitions cannot be read from {file}: {error}") from error
    if not found:
        raise ConfigurationError(f"{file} holds no {KIND}")
    return {one["metadata"]["name"]: one for one in found}


async def in_cluster(settings: Settings, names: Iterable[str]) -> dict[str, Json]:
    """The definitions of that name that the cluster has."""
    async with await connect_cluster(settings) as client:
        found = {name: await definition_of(client, GroupResource.parse(name)) for name in names}
    return {name: manifest for name, manifest in found.items() if manifest is not None}
