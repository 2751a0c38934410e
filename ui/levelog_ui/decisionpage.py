"""The page of a decision: its inputs, desired and actual side by side, and the outcome of its writes."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from levelog.handlers.callnames import in_words, shown_write
from levelog_base.wire.objects import Application, ObjectKey
from levelog_history.differences import Difference, differences
from levelog_history.explaining import Explained, ExplainedWrite
from levelog_history.keys import wake_text
from levelog_history.revisions import Revision
from levelog_history.wording import other_text, outcome_text, read_text, woken
from levelog_replay.bundles.golden import text_of_test
from levelog_store.decide.decisions import Decision
from levelog_store.rows import ERRORS, WHOLE_INDEX
from levelog_ui.bundlepast import BundlePast
from levelog_ui.links import decision_path, object_path
from levelog_ui.marks import marks_of
from levelog_ui.past import Past
from levelog_ui.stories import Story, read_story

_MOST_INPUTS: Final = 100
_MOST_WRITES: Final = 100
_CASE: Final = "case.jsonl"


async def decision_page(past: Past, ordinal: int, code: Path | None) -> dict[str, Any] | None:
    """The values of the template; None: there is no such decision. `code` decides again."""
    parent = await past.parent_of(ordinal)
    if not parent:
        return None
    story = await read_story(past, ObjectKey.parse(parent))
    for (application, _, of), decisions in story.levels.items():
        for number, explained in enumerate(decisions):
            if of == parent and explained.decision.ordinal == ordinal:
                after = decisions[number + 1] if number + 1 < len(decisions) else None
                values = _values(story, application, decisions[: number + 1], after)
                level = application, explained.decision.view, parent
                values["refusals"] = (await past.refusals({level: explained.decision.round})).get(level)
                return values | _keeping(past, explained.decision, code)
    return None


def _values(
    story: Story, application: Application, decisions: list[Explained], after: Explained | None
) -> dict[str, Any]:
    explained = decisions[-1]
    decision, before = explained.decision, explained.before
    marks = {mark.id: mark for mark in marks_of(story)}
    inputs = list(_inputs(decisions))
    return {
        "application": application,
        "explained": explained,
        "decision": decision,
        "was": before.status if before else "",
        "woken": in_words(woken(decision)),
        "causes": [
            marks.get(f"r{each.sequence}") or f"{each.sequence}: {other_text(each)}" for each in explained.causes
        ],
        "wakes": [wake_text(explained, each) for each in explained.causes],
        "parent": _parent(story, decision.parent_sequence),
        "parent_changes": _parent_changes(story, explained),
        "inputs": inputs[:_MOST_INPUTS],
        "more_inputs": len(inputs) - _MOST_INPUTS,
        "parts": _parts(explained),
        "writes": [_write(story, each) for each in explained.writes[:_MOST_WRITES]],
        "more_writes": len(decision.intents) - min(len(explained.writes), _MOST_WRITES),
        "code_before": before.fingerprint if before is not None and explained.is_of_other_code else "",
        "earlier": decision_path(before.ordinal) if before else "",
        "later": decision_path(after.decision.ordinal) if after else "",
    }


def _parent(story: Story, sequence: int) -> Revision | None:
    entries = (each for number, each in story.entries if number == sequence)
    return next((each for each in entries if isinstance(each, Revision) and each.object == story.object), None)


def _parent_changes(story: Story, explained: Explained) -> list[Difference]:
    """The changes of the parent since the decision before."""
    now = _parent(story, explained.decision.parent_sequence)
    before = _parent(story, explained.before.parent_sequence) if explained.before else None
    return differences(before.manifest(), now.manifest()) if now is not None and before is not None else []


def _inputs(decisions: list[Explained]) -> Iterator[dict[str, Any]]:
    """The reads of the last decision; their contents are noted at the decision that first had them."""
    held: dict[tuple[str, str], tuple[int, bytes]] = {}
    last = decisions[-1]
    for each in decisions:
        for read in each.decision.reads:
            if read.content is not None:
                held[read.index, read.key] = read.version, read.content
    changes = {(each.index, each.key): each for each in last.reads}
    for read in last.decision.reads:
        if read.key.startswith(ERRORS):
            continue
        key = "" if read.key.startswith(WHOLE_INDEX) else read.key
        version, content = held.get((read.index, read.key), (0, b""))
        yield {
            "place": in_words(read_text(last.decision.view, read.index, key)),
            "version": read.version,
            "held": content.decode() if version == read.version or read.version <= 0 else "",
            "change": changes.get((read.index, key)),
        }


def _parts(explained: Explained) -> list[dict[str, str]]:
    """Key by key where both sides are mappings, else each as a whole."""
    decision = explained.decision
    if decision.desired is None and decision.actual is None:
        return []
    desired, actual = (
        msgspec.json.decode(each) if each is not None else UNSET for each in (decision.desired, decision.actual)
    )
    drift = {key: part for part, keys in decision.differing.items() for key in keys}
    if not isinstance(desired, dict) or not isinstance(actual, dict):
        return [{"key": "", "desired": _json(desired), "actual": _json(actual), "drift": "changed" if drift else ""}]
    one, other = cast("dict[str, Any]", desired), cast("dict[str, Any]", actual)
    keys = sorted(one.keys() | other.keys(), key=lambda key: (key not in drift, key))
    return [
        {
            "key": key,
            "desired": _json(one.get(key, UNSET)),
            "actual": _json(other.get(key, UNSET)),
            "drift": drift.get(key, ""),
        }
        for key in keys
    ]


def _json(value: object | UnsetType) -> str:
    if value is UNSET:
        return ""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()


def _write(story: Story, explained: ExplainedWrite) -> dict[str, Any]:
    intent, receipt = explained.intent, explained.receipt
    answer = ""
    if receipt is not None:
        status = f", HTTP {receipt.answer}" if receipt.answer else ""
        tries = f", attempt {receipt.attempts}" if receipt.attempts > 1 else ""
        answer = f"{outcome_text(receipt)}{status}{tries}"
    body = story.bodies.get(intent.key, b"")
    return {
        "text": shown_write(intent.view, intent.verb, intent.target),
        "href": "" if intent.verb == "call" else object_path(intent.target),
        "body": "" if body in (b"", b"null") else body.decode(errors="replace"),
        "answer": answer,
        "error": intent.error or (receipt.error if receipt else ""),
        "explained": explained,
    }


def _keeping(past: Past, decision: Decision, code: Path | None) -> dict[str, Any]:
    """Commands that decide again, and what makes a test of it."""
    of = shlex.quote(decision.parent)
    bundle = past.bundle.path if isinstance(past, BundlePast) else None
    options = f" --bundle {shlex.quote(str(bundle))}" if bundle else ""
    replay = f"levelog replay {shlex.quote(str(code)) if code else 'FILE'}{options} --object {of}"
    found = [("decide again" if code else "decide again, with the code in FILE", replay)]
    if decision.cause:
        found.append(("open the debugger in it", f"{replay} --break {decision.cause}"))
    if bundle is None:
        found.append(("keep it, for the test", f"levelog export {_CASE} --object {of}"))
    name = f"{decision.parent.rpartition('/')[2]} after record {decision.cause}"
    test = text_of_test(bundle.name if bundle else _CASE, code.stem if code else "FILE", name)
    return {"commands": found, "test": test}
