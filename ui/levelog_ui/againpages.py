"""The pages that decide again: on a history changed in the address, or on the recorded inputs of decisions."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from levelog.handlers.callnames import in_words
from levelog_base.errors import ConfigurationError
from levelog_replay.comparing import Divergence, content_texts, part_texts
from levelog_replay.travel.edits import WantedEdits
from levelog_store.look.levelpages import OUT_OF_SYNC, LevelQuery
from levelog_store.look.overview import LevelLine
from levelog_ui.again import AgainCode, MadeAgain, Question
from levelog_ui.bundlepast import BundlePast
from levelog_ui.links import decision_path, number_of, with_query
from levelog_ui.past import Past

_WRITES: Final = ("writes", "content of writes")
_BESIDE: Final = ("status", "round")
"""The one is told beside the parts, the other follows from the writes."""
_MOST_UNHELPED: Final = 20
_NO_CODE: Final = "these pages have no code to decide with: start them with --code FILE"


async def what_if_page(past: Past, again: AgainCode | None, query: Mapping[str, str]) -> dict[str, Any]:
    """The values of the template. Raises ConfigurationError for what cannot be changed.

    `?drop=20`, `?swap=20 23`, `?set=23 spec.replicas=2`, `?delay-receipt=3s`: the options of `levelog what-if`; without
    any, the form alone. `&run=1` comes back for an answer.
    """
    given = {name: query.get(name, "").strip() for name in _OPTIONS}
    first, _, last = await past.source.ends()
    values: dict[str, Any] = {"given": given, "renews": False, "first": first, "last": last, "answer": None}
    if not any(given.values()):
        return values
    wanted = _wanted(given)
    edits = wanted.edits()
    if again is None:
        raise ConfigurationError(_NO_CODE)
    asked = await _asked(again, edits, query, with_query("/what-if", given))
    return values | asked | {"command": _command(past, again, "what-if", _words(wanted))}


async def again_page(
    past: Past, again: AgainCode | None, ordinal: int, query: Mapping[str, str]
) -> dict[str, Any] | None:
    """The values of the template, for one decision or with 0 for all; None: there is no such decision.

    Raises ConfigurationError without code. `?run=1` comes back for an answer.
    """
    if again is None:
        raise ConfigurationError(_NO_CODE)
    parent = await past.parent_of(ordinal) if ordinal else ""
    if ordinal and not parent:
        return None
    here = f"{decision_path(ordinal)}/again" if ordinal else "/again"
    values = {"parent": parent, "made": decision_path(ordinal), "renews": False}
    values["command"] = _command(past, again, "replay", ["--object", parent] if parent else [])
    asked = await _asked(again, MadeAgain(ordinal=ordinal), query, here)
    unhelped = await _unhelped(past, asked["rows"]) if asked["answer"] and not ordinal else []
    return values | asked | {"unhelped": unhelped}


async def _unhelped(past: Past, rows: list[dict[str, Any]]) -> list[LevelLine]:
    """Levels that are not in sync now, and of which no decision that is shown differs."""
    helped = {(each["past"].view, each["past"].parent) for each in rows}
    found = await past.levels(LevelQuery(statuses=OUT_OF_SYNC, order="since"), most=_MOST_UNHELPED)
    return [each.line for each in found if (each.line.view, each.line.parent) not in helped]


async def _asked(again: AgainCode, question: Question, query: Mapping[str, str], here: str) -> dict[str, Any]:
    """The answer to a question, or how far it is, and where the page comes back for it."""
    run = await again.ask(question, number_of(query.get("run", "")) or 0)
    answer = run.answer
    return {
        "run": run,
        "answer": answer,
        "done": min(run.done(), run.total),
        "comes_back": "" if answer else f"{here}{'&' if '?' in here else '?'}run={run.number}",
        "rows": [_changed(each, count) for each, count in answer.found] if answer else [],
        "more": answer.differing - sum(count for _, count in answer.found) if answer else 0,
    }


_OPTIONS: Final = ("drop", "swap", "set", "delay-receipt")


def _wanted(given: Mapping[str, str]) -> WantedEdits:
    swapped = _sequences("swap", given["swap"])
    if len(swapped) not in (0, 2):
        raise ConfigurationError(f"swap={given['swap'][:40]}: name two records, as in 20 23")
    record, _, value = given["set"].partition(" ")
    changed = _sequences("set", record)
    if given["set"] and len(changed) != 1:
        raise ConfigurationError(f"set={given['set'][:40]}: name one record and a field, as in 23 spec.replicas=2")
    return WantedEdits(
        dropped=_sequences("drop", given["drop"]),
        swapped=(swapped[0], swapped[1]) if swapped else None,
        delay=given["delay-receipt"],
        value=(changed[0], value.strip()) if changed else None,
    )


def _sequences(option: str, text: str) -> list[int]:
    found = [number_of(each) for each in text.replace(",", " ").split()]
    if None in found:
        raise ConfigurationError(f"{option}={text[:40]} is no sequence of a record")
    return [each for each in found if each is not None]


def _words(wanted: WantedEdits) -> list[str]:
    words = [word for sequence in wanted.dropped for word in ("--drop", str(sequence))]
    words += ["--swap", *map(str, wanted.swapped)] if wanted.swapped else []
    words += ["--set", *map(str, wanted.value)] if wanted.value else []
    return words + (["--delay-receipt", wanted.delay] if wanted.delay else [])


def _command(past: Past, again: AgainCode, command: str, options: list[str]) -> str:
    """The same in a terminal."""
    bundle = ["--bundle", str(past.bundle.path)] if isinstance(past, BundlePast) else []
    return shlex.join(["levelog", command, str(again.file), *bundle, *options])


def _changed(found: Divergence, count: int) -> dict[str, Any]:
    past = found.past
    return {
        "past": past,
        "then": found.before.verdict.status if found.before is not None else "",
        "now": found.after.verdict.status if found.after is not None else "",
        "count": count,
        "parts": sorted(_parts(found), key=lambda each: each[0] not in _WRITES),
    }


def _parts(found: Divergence) -> Iterator[tuple[str, list[str]]]:
    """Parts in which two outcomes differ, writes first, each with the differences as sentences."""
    before, after = found.before, found.after
    if before is None or after is None:
        if (made := before or after) is not None and made.keys:
            yield _WRITES[0], [in_words(made.writes_text)]
        return
    for part in found.parts:
        if part in _BESIDE:
            continue
        if part != "keys":
            yield part, [in_words(each) for each in part_texts(part, before.verdict, after.verdict)]
        elif before.writes_text != after.writes_text:
            yield _WRITES[0], [in_words(f"{before.writes_text} -> {after.writes_text}")]
        elif contents := list(content_texts(before, after)):
            yield _WRITES[1], contents
