"""CustomResourceDefinitions made of the Resource classes of operator files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from levelog.resources import Definition, ResourceBase
from levelog_base.errors import OperatorError
from levelog_cli.crds.schemas import INT_OR_STRING, KEPT, Json, schema_of

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "CustomResourceDefinition"

_OF_ALL: Final = ("short_names", "categories", "singular", "list_kind", "annotations")
"""Options that are of all versions."""
_PLAIN_PATH: Final = re.compile(r"\w+(\.\w+)*")
_DATE: Final[Json] = {"type": "string", "format": "date-time"}
_METADATA: Final[Json] = {
    "additionalProperties": {"type": "string"},
    "properties": {"creationTimestamp": _DATE, "deletionTimestamp": _DATE, "generation": {"type": "integer"}},
}


def is_own(cls: type[ResourceBase]) -> bool:
    """Whether a class is of a resource that its operator defines.

    It says `crd=True`; or has a group with a dot that Kubernetes does not keep for itself, and no `crd=False`.
    """
    group, said = cls.resource_type.group, cls.definition.crd
    return "." in group and (not f".{group}".endswith(".k8s.io") if said is None else said)


def definitions_of(classes: Iterable[type[ResourceBase]]) -> list[Json]:
    """A CustomResourceDefinition for each resource that the classes define, in their order.

    Raises OperatorError where there is none, for two classes of one version, for several versions of which none is
    stored, for versions that differ in kind or scope, and for what `schema_of` refuses.
    """
    resources: dict[str, list[type[ResourceBase]]] = {}
    for cls in filter(is_own, classes):
        resources.setdefault(str(cls.resource_type.group_resource), []).append(cls)
    if not resources:
        raise OperatorError(
            'no class is of a custom resource of its own, as class Web(Resource, group="example.com", plural="webs")'
        )
    return [_definition(name, versions) for name, versions in resources.items()]


def _definition(name: str, classes: Sequence[type[ResourceBase]]) -> Json:
    stored = _stored(name, classes)
    of, said = stored.resource_type, stored.definition
    for cls in classes:
        resource = cls.resource_type
        if (resource.kind, resource.scope) != (of.kind, of.scope):
            raise OperatorError(f"class {cls.__name__}: {name} is a {of.kind}, {of.scope}, as {stored.__name__} says")
        if cls is not stored and any(getattr(cls.definition, each) for each in _OF_ALL):
            raise OperatorError(f"class {cls.__name__}: names are of all versions: give them to {stored.__name__}")
    names: Json = {
        "plural": of.plural,
        "singular": said.singular or of.kind.lower(),
        "kind": of.kind,
        "listKind": said.list_kind or f"{of.kind}List",
        "shortNames": list(said.short_names),
        "categories": list(said.categories),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name} | ({"annotations": dict(said.annotations)} if said.annotations else {}),
        "spec": {
            "group": of.group,
            "scope": of.scope,
            "names": {key: value for key, value in names.items() if value},
            "versions": [_version(cls, is_stored=cls is stored) for cls in classes],
        },
    }


def _stored(name: str, classes: Sequence[type[ResourceBase]]) -> type[ResourceBase]:
    """The class of the version in which objects are stored."""
    by_version: dict[str, type[ResourceBase]] = {}
    for cls in classes:
        other = by_version.setdefault(cls.resource_type.version, cls)
        if other is not cls:
            raise OperatorError(
                f"{other.__name__} and {cls.__name__} both say what {name} is in version {cls.resource_type.version}: "
                "put crd=False into the class that reads only a part of it"
            )
    stored = [cls for cls in classes if cls.definition.storage]
    if len(classes) > 1 and len(stored) != 1:
        raise OperatorError(
            f"{name} has the versions {', '.join(by_version)}: say storage=True in the class of the one that is stored"
        )
    return (stored or classes)[0]


def _version(cls: type[ResourceBase], *, is_stored: bool) -> Json:
    said, schema = cls.definition, schema_of(cls)
    made: Json = {"name": cls.resource_type.version, "served": said.served, "storage": is_stored}
    if said.deprecated:
        made["deprecated"] = True
    if isinstance(said.deprecated, str) and said.deprecated:
        made["deprecationWarning"] = said.deprecated
    has_status = said.status_subresource
    if "status" in schema.get("properties", {}) if has_status is None else has_status:
        made["subresources"] = {"status": {}}
    if said.scale:
        made.setdefault("subresources", {})["scale"] = _scale_of(cls.__name__, said.scale, schema)
    if said.selectable_fields:
        made["selectableFields"] = [{"jsonPath": f".{path.lstrip('.')}"} for path in said.selectable_fields]
    if columns := list(_columns(cls, said, schema)):
        made["additionalPrinterColumns"] = columns
    return made | {"schema": {"openAPIV3Schema": schema}}


def _columns(cls: type[ResourceBase], said: Definition, schema: Json) -> Iterator[Json]:
    for columns, wide in ((said.columns, {}), (said.wide_columns, {"priority": 1})):
        for title, column in columns.items():
            if isinstance(column, str):
                yield _column_of(cls.__name__, title, column, schema) | wide
            else:
                yield {"name": title, **column}


def _column_of(cls: str, title: str, path: str, schema: Json) -> Json:
    """The column that shows what is at a path. Raises OperatorError where there is nothing."""
    shown = _at(cls, f"the column {title}", path, schema)
    type_ = "date" if str(shown.get("format")).startswith("date") else shown.get("type")
    known = type_ in ("integer", "number", "boolean", "date")
    return {"name": title, "type": type_ if known else "string", "jsonPath": f".{path.lstrip('.')}"}


def _scale_of(cls: str, paths: Sequence[str] | Mapping[str, str], schema: Json) -> Json:
    """The scale subresource. Raises OperatorError for paths of something else than replicas and a selector."""
    if isinstance(paths, Mapping):
        return dict(paths)
    wanted = ("integer", "integer", "string")
    names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    types = [_at(cls, "scale", path, schema).get("type", want) for path, want in zip(paths, wanted, strict=False)]
    if len(paths) not in (2, 3) or types != [*wanted[: len(paths)]]:
        raise OperatorError(
            f"class {cls}: scale is the paths of two integers, spec.… and status.…, and of a selector as text"
        )
    return {name: f".{path.lstrip('.')}" for name, path in zip(names, paths, strict=False)}


def _at(cls: str, what: str, path: str, schema: Json) -> Json:
    """The schema at a path; an empty one for a path with filters, and where anything may stand.

    Raises OperatorError where there is nothing at the path.
    """
    path = path.lstrip(".")
    found = {**schema, "properties": {**schema.get("properties", {}), "metadata": _METADATA}}
    for part in path.split(".") if _PLAIN_PATH.fullmatch(path) else ():
        if found.get(KEPT) or found.get(INT_OR_STRING):
            return {}
        below = found.get("properties", {}).get(part) or found.get("additionalProperties")
        if below is None:
            raise OperatorError(f"class {cls}: {what} shows {path}, and there is no {part}")
        found = below
    return found if _PLAIN_PATH.fullmatch(path) else {}
