"""What is said before the debugger asks: which decision this is, and what it is made on."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import asdict

from levelog.calls.faults import described
from levelog_cli.replaying import labelled, read_lines
from levelog_cli.tables import folded, line_width
from levelog_cli.timeline import is_first
from levelog_history.differences import drift_text, shown
from levelog_replay.stopping import Stop
from levelog_store.rows import StoredObject


def stop_lines(stop: Stop) -> Iterator[str]:
    """The lines of a stop."""
    scene = stop.scene
    past = scene.past
    name = past.view if stop.kind == "view" else scene.reconcile
    of = f" of {scene.program}" if scene.program else ""
    yield ""
    yield from folded(f"{stop.kind} {name}{of}, for {past.parent}", line_width())
    if stop.error is not None:
        yield from labelled("raises", described(stop.error))
    yield from labelled("made", f"{past.decided_at:%Y-%m-%d %H:%M:%S} UTC, because of record {past.cause}")
    yield from labelled("parent", f"as record {past.parent_sequence} showed it{_spec(scene.parent)}")
    before = "no level" if is_first(past) else f"{past.basis.status}, round {past.basis.round}"
    yield from labelled("before", before)
    yield from read_lines(scene.reads, past)
    if scene.drift:
        parts = {part: sorted(map(str, keys)) for part, keys in asdict(scene.drift).items() if keys}
        yield from labelled("drift", drift_text(parts))


def _spec(parent: StoredObject) -> str:
    spec = msgspec.json.decode(parent.body).get("spec")
    return f": spec {shown(spec)}" if spec else ""
