"""What calls came to that a replay made again, as it is printed: a table of the functions, and the first difference."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from levelog_base.counting import counted
from levelog_cli.printing.tables import folded, labelled, table_lines
from levelog_history.differences import differences, shown
from levelog_replay.comparing import Tally
from levelog_replay.effects.outcomes import CallComparison, CallDifference
from levelog_replay.effects.receipts import Came
from levelog_replay.stops.stopping import CallScene
from levelog_store.decide.decisions import Decision


def tally_lines(what: str, tallies: Mapping[str, Tally], names: tuple[str, str], *others: str) -> Iterator[str]:
    """A table of counts; `names` are those of the two that are compared, and those of files are too long for it."""
    sides = names if names == ("then", "now") else ("first", "second")
    columns = [what, "SAME", "CHANGED", *(f"ONLY {side.upper()}" for side in sides), *map(str.upper, others)]
    counts = ("same", "changed", "only_before", "only_after", *others)
    # the last column of a narrow table is a remark below its row: there is none
    rows = [(name, *(str(getattr(tally, each)) for each in counts), "") for name, tally in tallies.items()]
    yield from table_lines([*columns, ""], rows)


def call_lines(comparison: CallComparison, names: tuple[str, str]) -> Iterator[str]:
    """The table of the functions, and what was refused and skipped."""
    yield from tally_lines("CALL", comparison.tallies, names, "refused", "skipped")
    for kind, refused in sorted(comparison.refusals.items()):
        first = f"first {refused.what} in {refused.name}"
        yield from folded(f"{refused.calls} refused {kind}, {first}: --allow-network lets them do it")
    for obstacle, count in sorted(comparison.obstacles.items()):
        yield from folded(f"{counted(count, 'call')} skipped: {obstacle}")


def call_stop_lines(kind: str, scene: CallScene) -> Iterator[str]:
    """The lines of a stop in a function that is called again."""
    yield from _made(scene.past, scene.retry)
    yield from _request_lines(scene.request)
    if scene.then is not None:
        yield from labelled("then", _came(scene.then, f"{kind} {scene.name}"))


def difference_lines(found: CallDifference, names: tuple[str, str]) -> Iterator[str]:
    """The lines of a call that came out otherwise: what it was made with, and what came of it."""
    yield from folded(f"the first call that differs: {found.kind} {found.name} for {found.past.parent}")
    yield from _made(found.past, found.retry)
    yield from _request_lines(found.request)
    one, other = (_mapping(came) for came in (found.before, found.after))
    if one is not None and other is not None and (parts := differences(one, other)):
        for difference in parts:
            yield from labelled("result", str(difference))
        return
    width = max(map(len, names))
    for name, came in zip(names, (found.before, found.after), strict=True):
        yield from labelled("came to", f"{name:<{width}}  {_came(came, f'{found.kind} {found.name}')}")


def made_lines(past: Decision) -> list[str]:
    """The lines of when a decision was made, and for which record."""
    return labelled("made", f"{past.decided_at:%Y-%m-%d %H:%M:%S} UTC, because of record {past.cause}")


def _made(past: Decision, retry: int) -> Iterator[str]:
    yield from made_lines(past)
    yield from labelled("attempt", f"{retry + 1}, the last one" if retry else "1")


def _request_lines(request: Any) -> Iterator[str]:
    """The lines of what a function is called with; of an object, what it wants."""
    if not isinstance(request, dict):
        yield from labelled("request", shown(request))
        return
    for key, value in cast("dict[str, Any]", request).items():
        if key == "diff":
            for each in value:
                yield from labelled(key, f"{each['path']}: {shown(each.get('old'))} -> {shown(each.get('new'))}")
        elif key == "object" and "spec" in value:
            yield from labelled(key, f"spec {shown(value['spec'])}")
        else:
            yield from labelled(key, shown(value))


def _came(came: Came, title: str) -> str:
    """Words for what a call came to."""
    if not came.result:
        kind, _, name = title.partition(" ")
        prefix = f"{kind} {name.partition('/')[2]}: "
        return f"raised {came.error.removeprefix(prefix)}"
    result = msgspec.json.decode(came.result)
    if (yielded := _yielded(result)) is not None:
        return f"yielded {', '.join(yielded)}"
    return "returned nothing" if result is None else f"returned {shown(result)}"


def _mapping(came: Came) -> dict[str, Any] | None:
    """A result field by field, or intents by what they write; None where it is neither."""
    result = msgspec.json.decode(came.result) if came.result else None
    return cast("dict[str, Any]", result) if isinstance(result, dict) else _yielded(result)


def _yielded(result: object) -> dict[str, Any] | None:
    """Intents of a result, by verb and target; None where it holds none."""
    if not isinstance(result, list):
        return None
    found: dict[str, Any] = {}
    for each in cast("list[object]", result):
        if not isinstance(each, dict) or "verb" not in each:
            return None
        intent = cast("dict[str, Any]", each)
        place = "/".join(str(intent[part]) for part in ("resource", "namespace", "name") if intent.get(part))
        found[f"{intent['verb']} {place}"] = intent.get("body")
    return found or None
