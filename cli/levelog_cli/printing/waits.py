"""What `levelog wakes` found: a table of wakes, then for each client what it waits for and what that would save."""

from pathlib import Path
from typing import Final

from levelog.errors import ConfigurationError
from levelog_cli.printing.lines import print_line
from levelog_cli.printing.tables import print_table
from levelog_wakes.answer import WakesFound, Woken

_LEAST_WAKES: Final = 3
"""Rows with fewer are counted, not shown."""
_COLUMNS: Final = (
    *(
        "CLIENT",
        "RESOURCE",
        "OBJECTS",
        "WAKES",
        "PERIOD",
        "CALLS",
        "BYTES",
        "WROTE",
        "LISTS",
        "OWN",
        "UNDONE",
        "NO-OPS",
    ),
)
_RELATIONS: Final = {
    "itself": "{field} of the object itself",
    "owned": "{field} of the {resource} that it owns",
    "owner": "{field} of the {resource} that owns it",
    "named": "{field} of the {resource} that its spec names",
    "namesake": "{field} of the {resource} of the same name",
    "namespace": "{field} of any {resource} of its namespace",
    "cluster": "{field} of any {resource}",
}
_KINDS: Final = {
    "own write": "waits for no field of others: most wakes follow a write of its own, and nothing else",
    "date": "waits for no field: it writes each time, at its period; for a date, or for something outside",
    "outside": "waits for no field that this log shows: something outside of Kubernetes, or a cause that left no write",
    "nothing": "none of its wakes changed anything",
    "few": "has too few wakes that wrote to say",
}


def print_answer(found: WakesFound) -> None:
    """Print all that was found."""
    shown = [each for each in found.woken if each.wakes >= _LEAST_WAKES]
    if shown:
        print_table(_COLUMNS, [_cells(each) for each in shown])
    for each in shown:
        print_line(*_waits(each))
    seldom = len(found.woken) - len(shown)
    print_line(
        "", f"{found.events:,} events, {_seconds(found.seconds)}; {seldom} rows with fewer than 3 wakes left out"
    )
    for remark in found.remarks:
        print_line(f"note: {remark}")


def write_drafts(folder: Path, found: WakesFound) -> None:
    """Write a file for each condition. Raises ConfigurationError if the folder exists or cannot be made."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"--draft {folder}: {error.strerror}") from error
    for number, each in enumerate((each for each in found.woken if each.draft), 1):
        (folder / f"{each.resource.partition('.')[0]}_{number}.py").write_text(each.draft)


def _cells(each: Woken) -> list[str]:
    period = " and ".join(f"{_seconds(x.seconds)} ± {_seconds(x.jitter_seconds)}" for x in each.periods[:2])
    return [
        each.client,
        each.resource,
        f"{each.objects:,}",
        f"{each.wakes:,}",
        period or "irregular",
        f"{each.calls / each.wakes:.1f}",
        "" if each.size_bytes is None else f"{each.size_bytes / each.wakes:,.0f}",
        f"{each.wrote / each.wakes:.0%}",
        f"{sum(each.lists.values()):,}",
        f"{each.echoes:,}",
        f"{each.undone:,}",
        f"{each.unchanged_writes:,}",
    ]


def _waits(each: Woken) -> list[str]:
    condition, saving = each.condition, each.saving
    lines = ["", f"{each.client}, {each.resource}"]
    if condition.kind != "field":
        lines.append(f"  {_KINDS[condition.kind]}")
    for number, cause in enumerate(condition.fields if condition.kind == "field" else ()):
        what = _RELATIONS[cause.relation].format(field=cause.field, resource=cause.resource)
        others = each.wakes - each.wrote
        told = f"{cause.hits:,} of {each.wrote:,} wakes that wrote, {cause.others:,} of {others:,} others"
        if not others or cause.others > others:
            told = f"{cause.hits:,} of {each.wrote:,} wakes that wrote, {cause.others:,} changes without a wake"
        same = f"; {cause.with_it} more fields change with it" if cause.with_it else ""
        lines.append(f"  {'or' if number else 'waits for'} {what}: {told}{same}")
    if condition.kind == "field":
        lines.append(f"  precision {condition.precision:.0%}, recall {condition.recall:.0%}")
    if saving is not None and saving.wakes:
        size = f"{saving.size_bytes:,} bytes, " if each.size_bytes is not None else ""
        cpu = f"{saving.cpu_seconds:.1f} s of kube-apiserver's CPU"
        most = "at most " if condition.kind == "nothing" else ""
        lines.append(f"  saves {most}{saving.wakes:,} of {each.wakes:,} wakes: {saving.calls:,} calls, {size}{cpu}")
    return lines


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
