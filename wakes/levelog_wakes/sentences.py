"""The sentences about a client's wakes: what it waits for, and what waking on that alone would save."""

from collections.abc import Iterator
from typing import Final

from levelog_base.counting import counted
from levelog_wakes.bursts import Sum
from levelog_wakes.conditions import Explanation

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


def sentences(condition: Explanation, saving: Sum | None, total: Sum) -> Iterator[str]:
    """The sentences, each a line."""
    if condition.kind == "field":
        for number, cause in enumerate(condition.fields):
            what = _RELATIONS[cause.relation].format(field=cause.field, resource=cause.resource)
            others = f"{cause.others:,} of {total.idle:,} others"
            if cause.others > total.idle or not total.idle:
                others = f"{cause.others:,} changes without a wake"
            same = f"; {counted(cause.with_it, 'more field')} changed with it" if cause.with_it else ""
            hits = f"{cause.hits:,} of {total.wrote:,} wakes that wrote"
            yield f"{'or' if number else 'waits for'} {what}: {hits}, {others}{same}"
        yield f"precision {condition.precision:.0%}, recall {condition.recall:.0%}"
    else:
        yield _KINDS[condition.kind]
    if saving is not None and saving.wakes:
        size = f"{saving.size_bytes:,} bytes, " if total.size_bytes else ""
        cpu = f"{saving.cpu_seconds:.1f} s of kube-apiserver's CPU"
        most = "at most " if condition.kind == "nothing" else ""
        wakes = f"{saving.wakes:,} of {total.wakes:,} wakes"
        yield f"saves {most}{wakes}: {saving.calls:,} calls, {size}{cpu}"
