"""The definitions that were there before, in the cluster or in a file, against those that the classes make."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from levelog_base.errors import ConfigurationError
from levelog_base.wire.manifests import manifests_of
from levelog_base.wire.objects import GroupResource
from levelog_cli.crds.breaking import breaks
from levelog_cli.crds.definitions import API_VERSION, KIND
from levelog_cli.crds.schemas import RULES, Json
from levelog_cli.printing.lines import print_line, print_lines
from levelog_cli.servers.clusters import connect_cluster
from levelog_cli.settings import Settings
from levelog_kube.discovery import definition_of


class _Rule(Struct):
    rule: str


class _Schema(Struct, rename="camel"):
    """A schema, as far as it is looked into."""

    type: str = ""
    format: str = ""
    description: str = ""
    pattern: str = ""
    nullable: bool = False
    enum: list[Any] = []
    required: list[str] = []
    properties: dict[str, "_Schema"] = {}
    items: "_Schema | UnsetType" = UNSET
    additional_properties: "_Schema | bool" = False
    minimum: float = 0
    maximum: float = 0
    multiple_of: float = 0
    min_length: int = 0
    max_length: int = 0
    min_items: int = 0
    max_items: int = 0
    min_properties: int = 0
    max_properties: int = 0
    rules: list[_Rule] = msgspec.field(default_factory=list[_Rule], name=RULES)


class _OpenSchema(Struct):
    openAPIV3Schema: _Schema = msgspec.field(default_factory=_Schema)  # noqa: N815 - the API's name


class _Scale(Struct, rename="camel"):
    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class _Subresources(Struct):
    status: dict[str, Any] | None = None
    scale: _Scale | None = None


class _Path(Struct, rename="camel"):
    json_path: str


class _Column(_Path, rename="camel"):
    name: str
    type: str


class _Version(Struct, rename="camel"):
    name: str
    served: bool
    storage: bool
    schema: _OpenSchema = msgspec.field(default_factory=_OpenSchema)
    subresources: _Subresources | None = None
    additional_printer_columns: list[_Column] = []
    selectable_fields: list[_Path] = []


class _Names(Struct, rename="camel"):
    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class _Spec(Struct):
    group: str
    scope: str
    names: _Names
    versions: list[_Version]
    conversion: dict[str, Any] | None = None


class _Metadata(Struct):
    name: str
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Status(Struct, rename="camel"):
    stored_versions: list[str] | None = None


class _Definition(Struct):
    """The part of a definition that the rest of this folder reads."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


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
        for each in msgspec.convert(found, list[_Definition]):
            if sum(version.storage for version in each.spec.versions) != 1:
                raise ConfigurationError(f"{file}: {each.metadata.name} needs storage: true in one of its versions")
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
