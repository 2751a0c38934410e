"""The story as it is printed: for each step what woke, how the level moved, and what the API was asked."""

import msgspec
from rich.console import Console
from rich.markup import escape

from levelog.levels import drift_between
from levelog_cli.demo.watching import Decision, Outcome
from levelog_sandbox.requestlog import Request


def tell(console: Console, number: int, title: str, outcome: Outcome) -> None:
    """Print one step."""
    console.print(f"\n[bold]{number}. {escape(title)}[/bold]")
    _line(console, "log", f"{outcome.records} records")
    calls = len(outcome.decisions)
    if calls:
        causes = ", ".join(str(decision.cause) for decision in outcome.decisions)
        _line(console, "woke", f"{outcome.decisions[0].view} {calls} times, by record {causes}")
    elif outcome.levels:
        _line(console, "woke", "nothing: no field that the operator reads has another value")
        _line(console, "level", "as before, in sync")
    else:
        _line(console, "woke", "nothing: the level went with its Web, and the cluster collects the pods")
    for decision in outcome.decisions:
        _line(console, "level", _level(decision))
    writes = [_request(request) for request in outcome.requests]
    _line(console, "API", "; ".join(writes) if writes else "no write")


def _line(console: Console, name: str, text: str) -> None:
    console.print(f"   [dim]{name:<6}[/dim] {escape(text)}", highlight=False, soft_wrap=True)


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
