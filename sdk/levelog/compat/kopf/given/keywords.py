"""The keyword arguments of Kopf handlers: read-only views of an object, a patch to fill, and diffs."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from levelog.compat.kopf.given.memos import Memo
from levelog.edges import essence
from levelog_base.wire.projection import merge


class ReadOnly(Mapping[str, Any]):
    """A part of an object that is looked at, and written by `patch` alone; of a daemon's object, as it is by then."""

    def __init__(self, look: Callable[[], Mapping[str, Any] | None]) -> None:
        self._look = look

    def __getitem__(self, key: str) -> Any:
        return (self._look() or {})[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._look() or {})

    def __len__(self) -> int:
        return len(self._look() or {})

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> Any:
        """A copy has the content of now, of its own where it is a deep one."""
        return _of_content, (type(self), dict(self))


def _of_content(cls: type[ReadOnly], content: dict[str, Any]) -> ReadOnly:
    return cls(lambda: content)


class Meta(ReadOnly):
    """The metadata of an object."""

    @property
    def labels(self) -> ReadOnly:
        """Its labels."""
        return ReadOnly(lambda: self.get("labels"))

    @property
    def annotations(self) -> ReadOnly:
        """Its annotations."""
        return ReadOnly(lambda: self.get("annotations"))

    @property
    def name(self) -> str | None:
        """Its name."""
        return self.get("name")

    @property
    def namespace(self) -> str | None:
        """Its namespace; None where it has none."""
        return self.get("namespace")

    @property
    def uid(self) -> str | None:
        """Its uid."""
        return self.get("uid")

    @property
    def creation_timestamp(self) -> str | None:
        """When it was made, as the API writes it."""
        return self.get("creationTimestamp")

    @property
    def deletion_timestamp(self) -> str | None:
        """Time since which it is being deleted."""
        return self.get("deletionTimestamp")


class Body(ReadOnly):
    """An object, as the log showed it when the call was decided on."""

    @property
    def spec(self) -> ReadOnly:
        """Its spec."""
        return ReadOnly(lambda: self.get("spec"))

    @property
    def status(self) -> ReadOnly:
        """Its status."""
        return ReadOnly(lambda: self.get("status"))

    @property
    def metadata(self) -> Meta:
        """Its metadata."""
        return Meta(lambda: self.get("metadata"))

    meta = metadata


class PatchPart(MutableMapping[str, Any]):
    """A part of a patch, which is there once something is put in."""

    def __init__(self, whole: dict[str, Any], field: str) -> None:
        self._whole = whole
        self._field = field

    def _held(self) -> dict[str, Any]:
        found: dict[str, Any] = self._whole.get(self._field) or {}
        return found

    def __getitem__(self, key: str) -> Any:
        return self._held()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._whole.setdefault(self._field, {})[key] = value

    def __delitem__(self, key: str) -> None:
        del self._held()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())


class MetaPatch(PatchPart):
    """The metadata of a patch."""

    @property
    def labels(self) -> PatchPart:
        """Labels to set, or None to remove them."""
        return PatchPart(self._whole.setdefault(self._field, {}), "labels")

    @property
    def annotations(self) -> PatchPart:
        """Annotations to set, or None to remove them."""
        return PatchPart(self._whole.setdefault(self._field, {}), "annotations")


class Patch(dict[str, Any]):
    """What a handler wants changed in its object: a merge patch to fill, and functions that change a copy of it."""

    def __init__(self) -> None:
        super().__init__()
        self.fns: list[Callable[[dict[str, Any]], object]] = []

    @property
    def spec(self) -> PatchPart:
        """Fields of the spec."""
        return PatchPart(self, "spec")

    @property
    def status(self) -> PatchPart:
        """Fields of the status."""
        return PatchPart(self, "status")

    @property
    def metadata(self) -> MetaPatch:
        """Labels, annotations and the rest of the metadata."""
        return MetaPatch(self, "metadata")

    meta = metadata

    def merged(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The merge patch that all of this makes of an object."""
        found = {key: value for key, value in self.items() if value or key not in ("metadata", "spec", "status")}
        if not self.fns:
            return found
        before = copy.deepcopy(dict(body))
        after = copy.deepcopy(merge(before, found))
        for function in self.fns:
            function(after)
        return difference(before, after)


class DiffItem(NamedTuple):
    """One value that differs, at a path of keys; a list is one value."""

    op: str
    """`add`, `change` or `remove`."""
    field: tuple[str, ...]
    old: Any
    new: Any


def kopf_essence(body: Mapping[str, Any]) -> dict[str, Any]:
    """What Kopf compares of an object: no status, and of the metadata labels and annotations."""
    return essence({key: body[key] for key in body if key != "status"})


def kopf_diff(old: Any, new: Any, path: tuple[str, ...] = ()) -> tuple[DiffItem, ...]:
    """How two values differ: where both are mappings, key by key."""
    if old == new:
        return ()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return tuple(item for key in keys for item in kopf_diff(old.get(key), new.get(key), (*path, key)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    operation = "add" if old is None else "remove" if new is None else "change"
    return (DiffItem(operation, path, old, new),)


def object_keywords(body: Mapping[str, Any], memo: Memo, param: Any, logger: Any) -> dict[str, Any]:
    """The arguments that handlers and filters have alike."""
    found = Body(lambda: body)
    return {
        "body": found,
        "spec": found.spec,
        "meta": found.metadata,
        "status": found.status,
        "labels": found.metadata.labels,
        "annotations": found.metadata.annotations,
        "name": found.metadata.name,
        "namespace": found.metadata.namespace,
        "uid": found.metadata.uid,
        "memo": memo,
        "param": param,
        "logger": logger,
    }


NOT_CALLED: Final[Mapping[str, Any]] = {"retry": 0, "started": None, "runtime": timedelta(0)}
"""What `call_keywords` gives but the patch, for filters that are asked before there is a call."""


def call_keywords(started: datetime, retry: int, patch: Patch) -> dict[str, Any]:
    """The arguments that say which call it is."""
    return {
        "retry": retry,
        "started": started,
        "runtime": max(datetime.now(UTC) - started, timedelta(0)),
        "patch": patch,
    }


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one object of another."""
    found: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        existing = before.get(key)
        if isinstance(existing, Mapping) and isinstance(value, Mapping):
            if inner := difference(existing, value):  # pyright: ignore[reportUnknownArgumentType]
                found[key] = inner
        elif key not in before or existing != value:
            found[key] = value
    return found
