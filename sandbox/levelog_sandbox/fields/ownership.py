"""Field ownership: `metadata.managedFields` under updates and server-side apply, and the merge of an apply.

Rules: sigs.k8s.io/structured-merge-diff v6 and k8s.io/apimachinery/pkg/util/managedfields. An update takes what it
changes; an apply claims what it says, refuses what another manager owns unless forced, and removes what the manager
claimed last time but no longer does, unless another manager owns it too. Maps are merged by key, keyed lists and sets
by item, the rest is replaced as a whole.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.fields.paths import (
    ABSENT,
    DuplicateItemError,
    Path,
    Paths,
    compare,
    element_of,
    from_fields,
    is_leaf,
    item_schema,
    paths_of,
    shown,
    to_fields,
    with_named_parents,
    without,
)
from levelog_sandbox.schemas.shapes import Schema

Json = dict[str, Any]
# Origin: DefaultMaxUpdateManagers in k8s.io/apimachinery/pkg/util/managedfields.
MOST_UPDATE_MANAGERS: Final = 10


def merge(live: Json, applied: Json, schema: Schema) -> Json:
    """The live object with everything that the applied configuration says; neither argument is changed."""
    merged = _merge(live, applied, schema)
    return merged if isinstance(merged, dict) else {}


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    if applied is ABSENT:
        return live
    if live is ABSENT or type(live) is not type(applied) or is_leaf(applied, schema):
        return applied
    if isinstance(applied, dict):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = _merge(live.get(key, ABSENT), value, schema.child(key)[0])
        return merged
    return _merge_items(live, applied, schema)


def _merge_items(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    theirs = [(element_of(item, schema), item) for item in live]
    mine: dict[str, Any] = {}
    for item in applied:
        element = element_of(item, schema)
        if element in mine:
            raise DuplicateItemError(f"duplicate entries for key [{element[2:]}]")
        mine[element] = item
    before = dict(theirs)
    order = interleaved([element for element, _ in theirs], list(mine))
    child = item_schema(schema)
    return [_merge(before.get(element, ABSENT), mine.get(element, ABSENT), child) for element in order]


def interleaved(live: Sequence[str], applied: Sequence[str]) -> list[str]:
    """The order of a merged list.

    Live items alone go out until the next shared one, in applied order, is met; a shared one met out of turn waits.
    """
    ours = set(applied)
    turns = deque(element for element in applied if element in set(live))
    order: list[str] = []
    out: set[str] = set()

    def put(element: str) -> None:
        order.append(element)
        out.add(element)
        if turns and turns[0] == element:
            turns.popleft()

    left, right = deque(live), deque(applied)
    while left or right:
        if left and right:
            if left[0] == right[0]:
                put(left.popleft())
                right.popleft()
                continue
            if left[0] in ours and turns and turns[0] != left[0]:
                left.popleft()
                continue
        if left and left[0] not in ours:
            put(left.popleft())
            continue
        if left and left[0] in out:
            left.popleft()
        if right:
            put(right.popleft())
    return order


NEVER_OWNED: Final[Paths] = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", "f:" + field)
        for field in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Manager:
    """The identity of one entry of managedFields; an apply is one entry whatever its version."""

    name: str
    operation: str
    version: str
    subresource: str

    @property
    def shown(self) -> str:
        """The manager as a conflict names it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Claim:
    """The fields of a manager, at which API version, since when (RFC 3339)."""

    paths: Paths
    version: str
    time: str


Claims = dict[Manager, Claim]


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """The writer now: field manager, API version and subresource of the request, and its moment."""

    manager: str
    version: str
    subresource: str
    time: str

    def entry(self, operation: str) -> Manager:
        """The identity of the entry that this writer adds to."""
        return Manager(self.manager, operation, "" if operation == "Apply" else self.version, self.subresource)


def read_claims(entries: Collection[Json] | None) -> Claims:
    """The claims in `metadata.managedFields`."""
    claims: Claims = {}
    for entry in entries or ():
        operation, version = entry.get("operation", ""), entry.get("apiVersion", "")
        manager = Manager(
            entry.get("manager", ""), operation, "" if operation == "Apply" else version, entry.get("subresource", "")
        )
        claims[manager] = Claim(from_fields(entry.get("fieldsV1") or {}), version, entry.get("time", ""))
    return claims


def write_claims(claims: Claims) -> list[Json]:
    """The entries in the server's order: applies first, then by time and name."""
    ordered = sorted(claims.items(), key=lambda item: (item[0].operation, item[1].time, item[0].name, item[1].version))
    entries: list[Json] = []
    for manager, claim in ordered:
        entry: Json = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": claim.version,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields(claim.paths),
        }
        if claim.time:
            entry["time"] = claim.time
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def claims_after_update(live: Json, new: Json, claims: Claims, schema: Schema, writer: FieldWriter) -> Claims:
    """The claims once the writer has replaced live by new; what it changed becomes its own."""
    difference = compare(live, new, schema)
    taken = (difference.added | difference.modified) - NEVER_OWNED
    kept = _without_others(claims, None, taken, difference.removed)
    if taken:
        mine = writer.entry("Update")
        before = kept[mine].paths if mine in kept else set()
        kept[mine] = Claim(before | taken, writer.version, writer.time)
    return _capped(kept)


def apply(
    live: Json, applied: Json, claims: Claims, schema: Schema, writer: FieldWriter, *, force: bool
) -> tuple[Json, Claims]:
    """The object and its claims after a server-side apply.

    Raises `StatusError` 409 naming each field that another manager owns with another value, unless forced.
    """
    mine = writer.entry("Apply")
    last = claims[mine].paths if mine in claims else set()
    said = paths_of(applied, schema)
    merged = merge(live, applied, schema)
    after = {**claims, mine: Claim(said, writer.version, writer.time)}
    if last:
        merged = _pruned(merged, after, last, schema)
    difference = compare(live, merged, schema)
    changed = difference.added | difference.modified
    if not force:
        _refuse_conflicts(after, mine, changed)
    after = _without_others(after, mine, changed, difference.removed)
    owned = said - NEVER_OWNED
    if not owned:
        del after[mine]
    elif changed or difference.removed:
        after[mine] = replace(after[mine], paths=owned)
    else:
        # The server leaves the time of a manager whose apply changed no value, even at its first.
        after[mine] = replace(after[mine], paths=owned, time=claims[mine].time if mine in claims else "")
    return merged, after


def _pruned(merged: Json, claims: Claims, last: Paths, schema: Schema) -> Json:
    """Less what the manager claimed last time and nobody claims now."""
    last_named = with_named_parents(last, schema)
    pruned = without(merged, last_named, schema)
    everything = with_named_parents(paths_of(merged, schema), schema)
    owned: Paths = set()
    for claim in claims.values():
        owned |= claim.paths
    remaining = with_named_parents(paths_of(pruned, schema), schema)
    pruned = without(merged, everything - (remaining | with_named_parents(owned, schema)), schema)
    remaining = with_named_parents(paths_of(pruned, schema), schema)
    return without(merged, (everything - remaining) & last_named, schema)


def _without_others(claims: Claims, mine: Manager | None, taken: Paths, removed: Paths) -> Claims:
    kept: Claims = {}
    for manager, claim in claims.items():
        if manager == mine:
            kept[manager] = claim
            continue
        paths = claim.paths - taken - removed
        if paths:
            kept[manager] = replace(claim, paths=paths)
    return kept


def _refuse_conflicts(claims: Claims, mine: Manager, changed: Paths) -> None:
    conflicts: list[tuple[str, Path]] = []
    for manager, claim in claims.items():
        if manager != mine:
            conflicts += [(manager.shown, path) for path in sorted(claim.paths & changed)]
    if not conflicts:
        return
    causes = [
        refusals.RefusalCause(shown(path), "FieldManagerConflict", f"conflict with {owner}")
        for owner, path in conflicts
    ]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: conflict with {conflicts[0][0]}: {shown(conflicts[0][1])}"
    else:
        lines: list[str] = []
        for owner in sorted({owner for owner, _ in conflicts}):
            lines.append(f"conflicts with {owner}:")
            lines += [f"- {shown(path)}" for other, path in conflicts if other == owner]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    raise refusals.apply_conflict(causes, message)


def _capped(claims: Claims) -> Claims:
    """The oldest updates beyond the server's limit are merged into one entry, `ancient-changes`."""
    updates = sorted((m for m in claims if m.operation == "Update"), key=lambda m: (claims[m].time, m.name))
    excess = len(updates) - MOST_UPDATE_MANAGERS
    if excess <= 0:
        return claims
    kept = dict(claims)
    for manager in updates[: excess + 1]:
        claim = kept.pop(manager)
        bucket = Manager("ancient-changes", "Update", claim.version, "")
        before = kept[bucket].paths if bucket in kept else set()
        kept[bucket] = Claim(before | claim.paths, claim.version, claim.time)
    return kept
