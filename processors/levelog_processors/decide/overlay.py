"""Intents as SQL will have them once it is told what folded records have ended."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from levelog_base.wire.records import ReceiptNoted, TargetObserved
from levelog_store.decide.decisions import OpenIntent
from levelog_store.decide.inputreads import ToldIntent
from levelog_store.fold.ends import Ends


def told(intents: Iterable[ToldIntent], ends: Ends) -> list[OpenIntent]:
    """The intents after the receipts and observations that SQL is told next, by the rules of `end_intents`."""
    receipts: dict[str, list[tuple[ReceiptNoted, str]]] = {}
    for folded, state in sorted(ends.receipts, key=lambda each: each[0].record.key):
        receipts.setdefault(folded.record.key, []).append((folded.record, state))
    observations: Mapping[str, TargetObserved] = {each.key: each for each in ends.observations}
    found: list[OpenIntent] = []
    for each in intents:
        intent = each.intent
        for record, state in receipts.get(intent.key, ()):
            intent = _ended(intent, each.owner, record, state)
        if (observed := observations.get(intent.key)) is not None:
            intent = replace(intent, observed_version=observed.target_version, observed_at=observed.time)
        found.append(intent)
    return found


def _ended(intent: OpenIntent, owner: str, record: ReceiptNoted, state: str) -> OpenIntent:
    is_of_claim = (
        intent.state != "claimed" or not owner or (owner == record.process and intent.attempts == record.attempts)
    )
    is_latest = intent.state != "written" or intent.attempts <= record.attempts
    if not is_of_claim or not is_latest:
        return intent
    is_first = not intent.outcome
    outcome = record.outcome if is_first else intent.outcome
    return replace(
        intent,
        state=intent.state if intent.state in ("settled", "satisfied", "failed") else state,
        outcome=outcome,
        error=record.error if is_first else intent.error,
        answer=record.answer if is_first and outcome == "failed" else intent.answer,
        is_folded=True,
        result_uid=record.target_uid,
        result_version=record.target_version,
    )
