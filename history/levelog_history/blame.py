"""The record in which each field of an object got its value, and who wrote that."""

from typing import Any

from levelog_base.errors import ConfigurationError
from levelog_history.differences import fields_of, is_within
from levelog_history.revisions import Revision
from levelog_history.selection import few

ALL = "."
"""Stands for all fields."""


class Blame:
    """Takes the revisions of one object, in their order."""

    def __init__(self) -> None:
        self._name = self._uid = ""
        self._fields: dict[str, tuple[Any, Revision]] = {}

    def take(self, revision: Revision) -> None:
        """Note which fields a revision sets; what it leaves as it was keeps its record."""
        if revision.is_gone:
            self._fields = {}
            return
        known = self._fields if revision.uid == self._uid else {}
        self._name, self._uid, self._fields = revision.object, revision.uid, {}
        for path, value in fields_of(revision.manifest()):
            before = known.get(path)
            is_same = before is not None and before[0] == value and type(before[0]) is type(value)
            self._fields[path] = before if before is not None and is_same else (value, revision)

    def of(self, field: str) -> list[tuple[str, Any, Revision]]:
        """Path, value and revision of each field within one, sorted. Raises ConfigurationError if there is none."""
        found = [(path, *self._fields[path]) for path in sorted(self._fields) if field == ALL or is_within(path, field)]
        if not found:
            raise ConfigurationError(
                f"{self._name} has no field {field}: it has {few(self._fields.keys(), like=field)}"
            )
        return found
