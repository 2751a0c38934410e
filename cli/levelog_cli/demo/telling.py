"""The story as it is printed: for each step what woke, how the level moved, and what the API was asked."""

import textwrap
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.markup import escape

from levelog.levels import drift_between
from levelog_cli.demo.watching import Decision, Outcome
from levelog_sandbox.requestlog import Request

_INDENT: Final = " " * 10
_TIE: Final = "\u00a0"
"""A space at which no line is broken."""


def tell(console: Console, number: int, title: str, outcome: Outcome) -> None:
    """Print one step."""
    console.print(f"\n[bold]{number}. {escape(title)}[/bold]")
    _line(console, "log", _records(outcome))
    if outcome.decisions:
        _line(console, "woke", _calls(outcome.decisions))
    elif outcome.levels:
        after = "both records" if outcome.records == 2 else f"all {outcome.records} records"
        _line(console, "woke", f"nothing: after {after}, all that it reads is as before")
        _line(console, "level", "as before, in sync")
    else:
        _line(console, "woke", "nothing: the level went with its Web; the cluster collects the pods")
    for decision in outcome.decisions:
        _line(console, "level", _level(decision))
    writes = [_request(request).replace(" ", _TIE) for request in outcome.requests]
    _line(console, "API", "; ".join(writes) if writes else "no write")


def tell_sum(console: Console, summary: dict[str, Any]) -> None:
    """Print what it came to."""
    calls = " and ".join(f"{name} {count} times" for name, count in summary["calls"].items())
    text = (
        f"Converged in {summary['seconds']} s, with {summary['writes']} writes to the API. Called {calls}; "
        f"{summary['spurious_wakes'] or 'no'} calls without a change to look at or a drift to close. "
        f"The log holds {summary['records']} records: of objects, marks of the first lists, and receipts of writes."
    )
    console.print("\n" + textwrap.fill(text, console.width), highlight=False, soft_wrap=True)


def tell_how_to_try(console: Console, kubeconfig: str, data_dir: Path) -> None:
    """Print what a second terminal needs."""
    console.print("Stays up until Ctrl-C. For kubectl and levelog in a second terminal:", soft_wrap=True)
    console.print(f"export KUBECONFIG={kubeconfig} LEVELOG_DATA_DIR={data_dir}", highlight=False, soft_wrap=True)


def _line(console: Console, name: str, text: str) -> None:
    wrapped = textwrap.wrap(text, console.width - len(_INDENT), break_on_hyphens=False)
    first, *more = (line.replace(_TIE, " ") for line in wrapped)
    console.print(f"   [dim]{name:<6}[/dim] {escape(first)}", highlight=False, soft_wrap=True)
    for line in more:
        console.print(f"{_INDENT}{escape(line)}", highlight=False, soft_wrap=True)


def _records(outcome: Outcome) -> str:
    others = outcome.records - outcome.changes
    if not others:
        return f"{outcome.records} records of objects"
    receipts = f"{others} receipts of writes" if others > 1 else "1 receipt of a write"
    return f"{outcome.records} records: {outcome.changes} of objects, {receipts}"


def _calls(decisions: list[Decision]) -> str:
    """How often the view was called, and the newest record behind each call."""
    *causes, last = (str(decision.cause) for decision in decisions)
    if not causes:
        return f"{decisions[0].view} once, for record {last} of the log"
    return f"{decisions[0].view} {len(decisions)} times, for records {', '.join(causes)} and {last} of the log"


def _level(decision: Decision) -> str:
    if decision.desired is None or decision.actual is None:
        return decision.outcome
    desired, actual = msgspec.json.decode(decision.desired), msgspec.json.decode(decision.actual)
    drift = drift_between(desired, actual)
    counts = f"{len(desired)} wanted, {len(actual)} there"
    return f"{counts}: {drift or 'in sync'} → {decision.outcome}" if drift else f"{counts}: in sync"


def _request(request: Request) -> str:
    effect = "" if request.changed else ", nothing changed"
    return f"{request.verb} {request.resource}/{request.name} ({request.status_code}{effect})"
