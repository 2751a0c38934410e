"""The functions in a version of the code, and how two versions differ. Loads no SQL."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from levelog.handlers.finalizing import INDEX, VIEW
from levelog.levels import LevelStatus
from levelog_store.rows import Verdict

Kind: TypeAlias = Literal["index", "effect", "view", "reconcile", "event", "timer"]

UNRECORDED: Final[tuple[Kind, ...]] = ("event", "timer")
"""Kinds whose calls leave no records, and which have positions of their own."""
CHANGED_CODE: Final = "not evaluated since its code changed"
"""Reason of a level that changed code has not decided on, and of no other; it is told by `is_outdated` alone."""
HandlerName: TypeAlias = tuple[Kind, str]
"""Kind and `operator/function`; a reconcile function is named as its view, the index of an effect as the effect."""


class Handler(Struct, frozen=True, kw_only=True, order=True):
    """A row of `handlers`: a registered function with everything that identifies its behaviour."""

    kind: Kind
    name: str
    fingerprint: str
    resource: str
    """Resource of the objects that it is given."""
    reads: tuple[str, ...] = ()
    """Names of the indices that a view may read, sorted."""


def is_outdated(level: LevelStatus | Verdict) -> bool:
    """Tell whether changed code has not decided on a level yet, whichever process is to."""
    return level.reason == CHANGED_CODE


class Backfill(Struct, frozen=True, kw_only=True):
    """A row of `backfills`: what changed code has not computed anew yet, for one partition.

    The entries of an index, the levels of a view or, named by its reconcile function, those that are not in sync.
    """

    name: str
    partition: int
    kind: Kind
    resource: str
    """Of the objects; empty: levels are enough."""


class Differences(Struct, frozen=True, kw_only=True):
    """What to do with the tables when the code changes."""

    emptied: frozenset[str]
    """Indices whose entries go: they are removed, or are of another resource now."""
    indexed: tuple[Handler, ...]
    """Indices to recompute."""
    forgotten: frozenset[str]
    """Views, and handlers without records, whose levels go: they are removed, or have other parents now."""
    evaluated: tuple[Handler, ...]
    """Views to evaluate again."""
    decided: frozenset[str]
    """Views, not among these, of whose levels those that are not in sync are decided on anew.

    Their reconcile function changed, or an effect of their operator.
    """
    listening: frozenset[str] = frozenset()
    """Record handlers, and timers without records, that are new, or changed."""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    @property
    def changed(self) -> frozenset[str]:
        """Views whose writes that nobody has claimed are not what this code would decide."""
        return self.forgotten | self.decided | {view.name for view in self.evaluated}

    def left_after(self, unfinished: Iterable[Backfill], partitions: int) -> list[Backfill]:
        """What is not computed anew yet once the code has changed; the partitions may not have all objects yet."""
        anew = [*self.indexed, *self.evaluated]
        gone = {*self.emptied, *self.forgotten, *(each.name for each in anew)}
        left = {(each.name, each.partition): each for each in unfinished if each.name not in gone}
        for n in range(partitions):
            jobs = [Backfill(name=each.name, partition=n, kind=each.kind, resource=each.resource) for each in anew]
            jobs += [Backfill(name=view, partition=n, kind="reconcile", resource="") for view in self.decided]
            left = {(job.name, n): job for job in jobs} | left
        return list(left.values())


def differences(before: Iterable[Handler], after: Iterable[Handler]) -> Differences:
    """Compare two codes, handler by handler."""
    old, new = by_name(before), by_name(after)
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    indexed = [handler for name, handler in new.items() if handler.kind == "index" and name in changed]
    sources = {index.name for index in indexed}
    evaluated = [
        handler
        for name, handler in new.items()
        if handler.kind == "view" and (name in changed or not sources.isdisjoint(handler.reads))
    ]
    decided = {name for kind, name in changed if kind == "reconcile" and ("view", name) in new}
    operators = {_operator(name) for kind, name in changed if kind == "effect"}
    decided |= {name for kind, name in new if kind == "reconcile" and _operator(name) in operators}
    return Differences(
        emptied=_moved("index", old, new),
        indexed=tuple(indexed),
        forgotten=_moved("view", old, new).union(*(_moved(kind, old, new) for kind in UNRECORDED)),
        evaluated=tuple(evaluated),
        decided=frozenset(decided - {view.name for view in evaluated}),
        listening=frozenset(name for kind, name in changed if kind in UNRECORDED and (kind, name) in new),
    )


def unfinalized(before: Iterable[Handler], after: Iterable[Handler]) -> list[tuple[str, str]]:
    """Operators, and the resources whose objects may keep an operator's finalizer, which its code forgot about."""
    found: list[tuple[str, str]] = []
    taken_off = {
        (_operator(each.name), each.resource) for each in after if each.kind == "view" and each.name.endswith(VIEW)
    }
    for each in before:
        operator, _, name = each.name.partition("/")
        if each.kind == "index" and name.startswith(INDEX) and (operator, each.resource) not in taken_off:
            found.append((operator, each.resource))
    return sorted(found)


def by_name(handlers: Iterable[Handler]) -> dict[HandlerName, Handler]:
    """Handlers by kind and name."""
    return {(handler.kind, handler.name): handler for handler in handlers}


def _operator(name: str) -> str:
    return name.partition("/")[0]


def _moved(kind: Kind, old: Mapping[HandlerName, Handler], new: Mapping[HandlerName, Handler]) -> frozenset[str]:
    """Handlers of a kind that are not there any more, or are given objects of another resource."""
    return frozenset(
        handler.name
        for name, handler in old.items()
        if handler.kind == kind and (name not in new or new[name].resource != handler.resource)
    )
