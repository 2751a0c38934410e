"""Turns the intents that a function yields into rows that an actuator can send: owners, content, keys.

It compares with what the log shows of the targets, and encrypts secrets; it reads no table and sends nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from levelog.calls.faults import fault_reason
from levelog.intents import Intent, IntentOptions, with_encoded_data
from levelog.resources import ResourceType
from levelog_base.errors import OperatorError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.projection import merge
from levelog_processors.bound import BoundView
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.writetargets import Aimed, place_of_call
from levelog_processors.keys import calls_key, kept_call
from levelog_store.decide.decisions import IntentRow, request_of
from levelog_store.rows import Bucket, IndexKey, StoredObject


def target_names(acted: Iterable[tuple[Outlook, Round | None]], *, verb: str = "") -> list[str]:
    """Objects that rounds ask to write to, in this way or any, sorted."""
    asked = (each for _, round_ in acted if round_ is not None for each in round_.intents)
    return sorted({str(each.target) for each in asked if verb in ("", each.verb)})


def last_called(look: Outlook, round_: Round, bucket: Callable[[IndexKey], Bucket]) -> dict[str, str]:
    """Keys of the last calls that took place of the effects that a round asks for, by `place_of_call`."""
    operator, uid = look.facts.view.operator, look.facts.parent.uid
    found: dict[str, str] = {}
    for each in round_.intents:
        if each.verb == "call":
            name = each.intent.options.name
            calls = bucket((f"{operator}/{each.target.resource}", calls_key(uid))).values
            for last in (call for call in map(kept_call.decode, calls) if call.name == name):
                found[place_of_call(str(each.target), name)] = last.idempotency_key
    return found


class RowInputs(Struct, frozen=True, kw_only=True):
    """What the rows of a round's intents are made of, besides these."""

    identity: Sequence[str]
    """Cluster and application."""
    targets: Mapping[str, StoredObject]
    """As they are held, with their bodies."""
    last_applied: Mapping[str, bytes] = {}
    """Bodies, by target."""
    is_watched: Callable[[ObjectKey], bool]
    redactor: Redactor


def with_rows(look: Outlook, round_: Round, inputs: RowInputs, called: Mapping[str, str]) -> Round:
    """The round with the rows of its intents; if they cannot be sent, with the reason as its error.

    `called` are the keys of the last finished calls, by `place_of_call`.
    """
    view, parent = look.facts.view, look.facts.parent
    try:
        rows = intent_rows(inputs, view, parent, look.facts.before.round + 1, round_.intents)
    except Exception as error:  # noqa: BLE001 - what a user's function asks for may be anything; only this level is concerned
        name = view.reconcile.name if view.reconcile else view.handler.name
        return replace(round_, error=fault_reason("reconcile function", name, error))
    rows = [
        replace(row, key=_call_key(look, row, inputs.identity, called)) if row.verb == "call" else row for row in rows
    ]
    places = {_place(row) for row in rows if row.verb == "call"}
    return replace(round_, rows=rows, called={place: called[place] for place in sorted(places & called.keys())})


def _place(row: IntentRow) -> str:
    return place_of_call(row.target, msgspec.json.decode(row.options, type=IntentOptions).name)


def _call_key(look: Outlook, row: IntentRow, identity: Sequence[str], called: Mapping[str, str]) -> str:
    """Key of a call, from parent, request and the previous finished call: both stores can compute it.

    If a waiting call is asked for again, it continues with its key and its schedule. A call that gave up has ended.
    """
    facts, request = look.facts, request_of(row.verb, row.target, row.body, row.options)
    waiting = {i.request: i.key for i in facts.intents if i.key in look.to_withdraw}
    ended = {i.request: i.key for i in facts.failures}
    before = called.get(_place(row), ""), ended.get(request, "")
    return waiting.get(request) or digest(*identity, facts.view.name, facts.parent.uid, *before, request)


def intent_rows(
    inputs: RowInputs, view: BoundView, parent: StoredObject, number: int, wanted: Sequence[Aimed]
) -> list[IntentRow]:
    """Rows of the intents of the round of a number.

    The idempotency key is the digest of identity, operator, view, parent's uid, round, target and content, so that the
    same wish in the same round is the same write. Content with secret values counts, is compared and is shown as what
    is recorded of them; as it is to be sent it is encrypted.

    Raises OperatorError for two intents of one round with the same target and verb; ConfigurationError for content that
    holds a hash in place of a value, and for secret values without a key.
    """
    stem, redactor = (*inputs.identity, view.name, parent.uid, str(number)), inputs.redactor
    rows: list[IntentRow] = []
    seen: set[tuple[str, ...]] = set()
    for ordinal, each in enumerate(wanted):
        intent, key, name = each.intent, each.target, str(each.target)
        if (resource := each.resource) is None:
            row = _row(stem, number, ordinal, each, each.body)
            place = intent.verb, name, intent.options.name
            if place not in seen:
                rows.append(row)
            elif intent.verb == "call":
                raise OperatorError(
                    f"view {view.name} asks twice to call {intent.name} in one round: give each a name="
                )
            seen.add(place)
            continue
        if (intent.verb, name) in seen:
            raise OperatorError(f"view {view.name} asks twice to {intent.verb} {name} in one round")
        seen.add((intent.verb, name))
        content = _content(view, parent, intent, resource, key)
        if (shown_target := inputs.targets.get(name)) is not None:
            _refuse_stranger(parent, intent, shown_target, content)
        try:
            clear = canonical(content)
        except (TypeError, ValueError) as error:
            raise OperatorError(f"{intent.verb} of {intent.kind or resource.kind} {intent.name}: {error}") from error
        redactor.refuse_hashes(f"{intent.verb} of {name}", clear)
        shown = redactor.redact_content(key, content).content
        body = clear if shown is content else canonical(shown)
        is_shown = inputs.is_watched(key)
        is_done = _holds_already(intent, body, shown_target, inputs.last_applied.get(name), watched=is_shown)
        row = _row(stem, number, ordinal, each, body, shown_target, is_watched=is_shown, is_done=is_done)
        rows.append(row if shown is content else replace(row, sealed=redactor.seal(clear, row.key)))
    return rows


def _row(
    stem: Sequence[str],
    number: int,
    ordinal: int,
    wanted: Aimed,
    body: bytes,
    target: StoredObject | None = None,
    *,
    is_watched: bool = False,
    is_done: bool = False,
) -> IntentRow:
    """`stem` is what begins the keys of a round; `target` is what the tables hold of it."""
    name, options = str(wanted.target), _options(wanted.intent)
    return IntentRow(
        key=digest(*stem, wanted.verb, name, body, options),
        round=number,
        ordinal=ordinal,
        verb=wanted.verb,
        target=name,
        api_version=wanted.api_version,
        kind=wanted.kind,
        target_uid=target.uid if target else "",
        target_version=target.version if target else 0,
        is_watched=is_watched,
        body=body,
        options=options,
        state="satisfied" if is_done else "pending",
    )


def _options(intent: Intent) -> bytes:
    """As they are stored. Raises msgspec.ValidationError if they could not be read again."""
    options = canonical(intent.options)
    msgspec.json.decode(options, type=IntentOptions)
    return options


def _content(view: BoundView, parent: StoredObject, intent: Intent, resource: ResourceType, key: ObjectKey) -> Any:
    if intent.verb not in ("apply", "create"):
        return intent.body
    manifest: dict[str, Any] = with_encoded_data(resource.group_resource, dict(intent.body))
    metadata: dict[str, Any] = dict(manifest.get("metadata") or {})
    if key.namespace:
        metadata["namespace"] = key.namespace
    is_own = str(key) == parent.object
    in_reach = not parent.namespace or parent.namespace == key.namespace
    if intent.options.owned and not is_own and in_reach and "ownerReferences" not in metadata:
        metadata["ownerReferences"] = [owner_reference(view, parent)]
    return manifest | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


class _Reference(Struct):
    """What counts of an owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _Owned(Struct):
    class Metadata(Struct):
        owner_references: list[_Reference] = field(name="ownerReferences", default_factory=list)

    metadata: Metadata


_owned = msgspec.json.Decoder(_Owned)


def _refuse_stranger(parent: StoredObject, intent: Intent, target: StoredObject, content: Any) -> None:
    """Raises OperatorError for a target that the log shows, and that is not the parent's to take over or to delete."""
    owner, options = _controller(_owned.decode(target.body).metadata.owner_references), intent.options
    match intent.verb:
        case "apply" if not options.remembered and (wanted := _controller(_references(content))) is not None:
            is_its = owner.uid == wanted.uid if owner is not None else options.adopt
            mend = "delete it, or, if it is yours, write adopt=True" if owner is None else "choose another name"
        case "delete" if options.owned and target.object != parent.object:
            is_in_reach = parent.namespace in ("", target.namespace)
            is_its = owner is not None and owner.uid == parent.uid and is_in_reach
            mend = "owned=False deletes it all the same"
        case _:
            return
    if not is_its:
        holder = f"{owner.kind}/{owner.name}" if owner is not None else "nobody"
        raise OperatorError(
            f"{intent.verb} of {target.object}: it exists and is controlled by {holder}, not by {parent.object}: {mend}"
        )


def _references(manifest: Any) -> list[_Reference]:
    return msgspec.convert(manifest["metadata"].get("ownerReferences") or [], list[_Reference])


def _controller(references: Iterable[_Reference]) -> _Reference | None:
    return next((each for each in references if each.controller), None)


def owner_reference(view: BoundView, parent: StoredObject) -> dict[str, Any]:
    """The parent as controlling owner."""
    resource = view.handler.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": parent.name,
        "uid": parent.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _holds_already(
    intent: Intent, body: bytes, target: StoredObject | None, applied: bytes | None, *, watched: bool
) -> bool:
    """Tell whether the target, as the log shows it, needs no write; only a watched target can show that."""
    if not watched or intent.options.remembered:  # a view of children has compared already, and knows more
        return False
    match intent.verb:
        case "delete":
            return target is None or target.is_deleting
        case "apply":
            wanted = msgspec.json.decode(body)
            if target is None or (applied is not None and not _covers(wanted, msgspec.json.decode(applied))):
                return False
            for name in ("apiVersion", "kind"):  # objects out of a list come without them
                del wanted[name]
            return _is_part_of(wanted, msgspec.json.decode(target.body))
        case "patch" | "patch_status":
            is_merge = intent.verb == "patch_status" or intent.options.patch_type == "merge"
            if target is None or not is_merge:
                return False
            held = msgspec.json.decode(target.body)
            return bool(merge(held, msgspec.json.decode(body)) == held)
        case _:
            return False


def _covers(wanted: Any, applied: Any) -> bool:
    """Tell whether every field that was applied before is still named, so that leaving one out is not lost."""
    if isinstance(applied, dict):
        return isinstance(wanted, dict) and all(key in wanted and _covers(wanted[key], applied[key]) for key in applied)
    if isinstance(applied, list):
        return isinstance(wanted, list) and len(wanted) == len(applied) and all(map(_covers, wanted, applied))
    return True


def _is_part_of(wanted: Any, actual: Any) -> bool:
    """Tell whether each field of `wanted` has that value in `actual`; null means absent."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(
            (key not in actual) if value is None else (key in actual and _is_part_of(value, actual[key]))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(wanted) == len(actual) and all(map(_is_part_of, wanted, actual))
    return bool(wanted == actual)
