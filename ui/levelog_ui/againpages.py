"""The pages that decide again: on a history that is changed in the address, or on what one decision was made on."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.handlers.callnames import in_words
from levelog_replay.comparing import Divergence, content_texts, part_texts
from levelog_replay.travel.edits import WantedEdits
from levelog_ui.again import AgainCode
from levelog_ui.bundlepast import BundlePast
from levelog_ui.links import decision_path, object_path, record_path
from levelog_ui.past import Past

_MOST: Final = 100
"""Decisions that are shown; of more, how many there are."""
_NO_CODE: Final = "these pages have no code to decide with: start them with --code FILE"


class PartChanged(Struct, frozen=True):
    """One part in which two outcomes differ."""

    name: str
    texts: list[str]


class DecisionChanged(Struct, frozen=True, kw_only=True):
    """A decision that comes out otherwise."""

    record: int
    record_href: str
    view: str
    parent: str
    parent_href: str
    then: str
    """Status, or that it was not made."""
    now: str
    parts: list[PartChanged]


async def what_if_page(past: Past, again: AgainCode | None, query: Mapping[str, str]) -> dict[str, Any]:
    """What the template shows. Raises ConfigurationError for what cannot be changed.

    `?drop=20`, `?swap=20 23`, `?set=23 spec.replicas=2`, `?delay-receipt=3s`: the options of `levelog what-if`; without
    any, the form alone.
    """
    given = {name: query.get(name, "").strip() for name in _OPTIONS}
    values: dict[str, Any] = {"given": given, "renews": False, "file": "" if again is None else again.file.name}
    first, _, last = await past.source.ends()
    values |= {"first": first, "last": last, "found": None, "command": ""}
    if not any(given.values()):
        return values
    wanted = _wanted(given)
    edits = wanted.edits()
    if again is None:
        raise ConfigurationError(_NO_CODE)
    found = await again.changed(past, edits)
    shown = [_changed(each) for each in found[:_MOST]]
    return values | {"found": shown, "count": len(found), "command": _command(past, again, wanted)}


async def again_page(past: Past, again: AgainCode | None, ordinal: int) -> dict[str, Any] | None:
    """What the template shows; None: there is no such decision. Raises ConfigurationError without code."""
    if again is None:
        raise ConfigurationError(_NO_CODE)
    parent = await past.parent_of(ordinal)
    if not parent:
        return None
    found = await again.repeated(past, ordinal)
    return {
        "parent": parent,
        "file": again.file.name,
        "made": decision_path(ordinal),
        "obstacle": found if isinstance(found, str) else "",
        "found": _changed(found) if isinstance(found, Divergence) else None,
        "renews": False,
    }


_OPTIONS: Final = ("drop", "swap", "set", "delay-receipt")


def _wanted(given: Mapping[str, str]) -> WantedEdits:
    swapped = _sequences("swap", given["swap"])
    if len(swapped) not in (0, 2):
        raise ConfigurationError(f"swap={given['swap'][:40]}: name two records, as in 20 23")
    record, _, value = given["set"].partition(" ")
    [sequence] = _sequences("set", record) or [0]
    return WantedEdits(
        dropped=_sequences("drop", given["drop"]),
        swapped=(swapped[0], swapped[1]) if swapped else None,
        delay=given["delay-receipt"],
        value=(sequence, value.strip()) if given["set"] else None,
    )


def _sequences(option: str, text: str) -> list[int]:
    found = text.replace(",", " ").split()
    if any(not (each.isascii() and each.isdigit() and len(each) < 19) for each in found):
        raise ConfigurationError(f"{option}={text[:40]} is no sequence of a record")
    return [int(each) for each in found]


def _command(past: Past, again: AgainCode, wanted: WantedEdits) -> str:
    words = ["levelog", "what-if", str(again.file)]
    if isinstance(past, BundlePast):
        words += ["--bundle", str(past.bundle.path)]
    for sequence in wanted.dropped:
        words += ["--drop", str(sequence)]
    if wanted.swapped:
        words += ["--swap", *map(str, wanted.swapped)]
    if wanted.value:
        words += ["--set", *map(str, wanted.value)]
    if wanted.delay:
        words += ["--delay-receipt", wanted.delay]
    return shlex.join(words)


def _changed(found: Divergence) -> DecisionChanged:
    past = found.past
    return DecisionChanged(
        record=past.cause,
        record_href=record_path(past.parent, past.cause) if past.cause else "",
        view=past.view,
        parent=past.parent,
        parent_href=object_path(past.parent),
        then=found.before.verdict.status if found.before is not None else "",
        now=found.after.verdict.status if found.after is not None else "",
        parts=list(_parts(found)),
    )


def _parts(found: Divergence) -> Iterator[PartChanged]:
    before, after = found.before, found.after
    if before is None or after is None:
        if (made := before or after) is not None and made.keys:
            yield PartChanged("writes", [in_words(made.writes_text)])
        return
    for part in found.parts:
        if part != "keys":
            yield PartChanged(part, [in_words(each) for each in part_texts(part, before.verdict, after.verdict)])
        elif before.writes_text != after.writes_text:
            yield PartChanged("writes", [in_words(f"{before.writes_text} -> {after.writes_text}")])
        elif contents := list(content_texts(before, after)):
            yield PartChanged("content of writes", contents)
