"""A level and its drift: desired against actual. For children: `handlers/owned.py`."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from levelog.resources import ResourceBase
from levelog_base.wire.canonical import is_other

T = TypeVar("T")

WHOLE: Final = "."
"""The one key under which two values differ that have no parts: scalars and lists."""


class Drift(Struct, frozen=True):
    """How actual differs from desired, by the keys of a mapping, the fields of a struct or the members of a set.

    A value without parts (a scalar, a list) differs as a whole, under the key `"."`; None counts as absent.
    """

    missing: frozenset[Any] = frozenset()
    """Desired but not there."""
    extra: frozenset[Any] = frozenset()
    """There but not desired."""
    changed: frozenset[Any] = frozenset()
    """On both sides, but not equal."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def __str__(self) -> str:
        parts = ((f"{name} {', '.join(sorted(map(str, keys)))}") for name, keys in self.parts() if keys)
        return "; ".join(parts) or "none"

    def parts(self) -> tuple[tuple[str, frozenset[Any]], ...]:
        """The three parts, each with its name and its keys."""
        return (("missing", self.missing), ("extra", self.extra), ("changed", self.changed))


class Level(Generic[T]):
    """What a view returns for one parent: a desired and an actual value of one type; equal means in sync.

    `recheck_at` asks for another evaluation at that time, even if nothing that the view reads changes. `reason` says in
    your words why actual is not as desired; it is the level's reason while the level drifts and nothing is under way.
    """

    __slots__ = ("_drift", "actual", "desired", "is_asked_for", "is_known", "reason", "recheck_at")

    def __init__(self, desired: T, actual: T, *, recheck_at: datetime | None = None, reason: str = "") -> None:
        self.desired = desired
        self.actual = actual
        self.recheck_at = recheck_at
        self.reason = reason
        self.is_known = False
        """Whether an edge handler's object was noted before its first call."""
        self.is_asked_for = False
        """As its reconcile function gets it: somebody wants it to be tried again now."""
        self._drift: Drift | None = None

    @property
    def drift(self) -> Drift:
        """The structural difference, computed once; empty means in sync."""
        if self._drift is None:
            self._drift = drift_between(self.desired, self.actual)
        return self._drift

    def __repr__(self) -> str:
        return f"Level(desired={self.desired!r}, actual={self.actual!r})"


class LevelStatus(Struct, frozen=True, kw_only=True):
    """The status of another view's level."""

    status: str
    """`in_sync`, `drifting`, `settling`, `failed`, `blocked` or `deleting`."""
    reason: str = ""
    """Why it is not in sync, as `levelog levels` shows it."""
    drift: Mapping[str, tuple[str, ...]] = {}
    """Keys that are missing, extra and changed."""
    since: datetime | None = None
    """When it got that status; None if unknown. A change of this alone wakes nothing."""
    children: tuple[str, ...] = ()
    """Wanted children that have levels to look up, as `webs.example.com/default/shop`."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """The part whose change wakes the views that read it."""
        return self.status, self.reason, self.drift, self.children


class Levels(dict[str, LevelStatus]):
    """How the levels of one object stand, by the names of their views; `levels: Levels` asks for those of the parent.

    Those of the same operator that do not read levels themselves. Who reads them is decided on after them. Levels of
    other objects are looked up: each is a dependency of the view, also where there is none. Among these are the views
    that `levels_of=` names, as `operator/view`.
    """

    def __init__(
        self,
        level_statuses: Mapping[str, LevelStatus] | Iterable[tuple[str, LevelStatus]] = (),
        *,
        find: Callable[[str], "Levels"],
        named: Callable[[type[ResourceBase], str, str | None], str],
    ) -> None:
        """`find` gives the levels of an object by its name, `named` the name of one that is asked for."""
        super().__init__(level_statuses)
        self._find = find
        self._named = named

    def of(self, resource: type[ResourceBase], name: str, namespace: str | None = None) -> "Levels":
        """How the levels of another object stand; empty if there is none, or its views leave it out.

        Its class, or a view of it, is in the view's `levels_of=`. Without a namespace, the one of the view's parent.
        Raises OperatorError for a class that is not declared, and for no namespace where the parent has none.
        """
        return self._find(self._named(resource, name, namespace))

    def children(self) -> "dict[str, Levels]":
        """The same of the object's wanted children that are parents of the operator, by their names.

        Children as `@op.children` functions return them; of kinds that no view has as its parent there is nothing.
        """
        return {name: self._find(name) for name in sorted({name for each in self.values() for name in each.children})}


def drift_between(desired: object, actual: object) -> Drift:
    """Compare two values of one type by their parts."""
    if isinstance(desired, Struct) and type(desired) is type(actual):
        return _mapping_drift(msgspec.structs.asdict(desired), msgspec.structs.asdict(actual))  # type: ignore[arg-type]
    if isinstance(desired, Mapping) and isinstance(actual, Mapping):
        return _mapping_drift(desired, actual)
    if isinstance(desired, Set) and isinstance(actual, Set):
        return Drift(missing=frozenset(desired - actual), extra=frozenset(actual - desired))
    if not is_other(desired, actual):
        return Drift()
    whole = frozenset({WHOLE})
    if actual is None:
        return Drift(missing=whole)
    return Drift(extra=whole) if desired is None else Drift(changed=whole)


def _mapping_drift(desired: Mapping[Hashable, object], actual: Mapping[Hashable, object]) -> Drift:
    return Drift(
        missing=frozenset(desired.keys() - actual.keys()),
        extra=frozenset(actual.keys() - desired.keys()),
        changed=frozenset(key for key in desired.keys() & actual.keys() if is_other(desired[key], actual[key])),
    )
