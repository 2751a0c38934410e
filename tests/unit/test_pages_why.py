"""What a page tells of how it came to an object: the last record that says something, and what led to it."""

from datetime import UTC, datetime

from levelog_history.revisions import Revision
from levelog_ui.marks import Mark, why_marks
from levelog_ui.stories import Story

POD = "pods/default/shop-1"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def mark(name: str, kind: str, *because: str, fields: tuple[str, ...] = ()) -> Mark:
    number = int(name[1:])
    return Mark(id=name, number=number, time=NOON, lane=POD, kind=kind, text="", fields=[*fields], because=[*because])


def told(*marks: Mark) -> list[str]:
    last = Revision(sequence=marks[-1].number, time=NOON, object=POD, happened="changed", uid="u", version=1)
    entries = [(last.sequence, last)]
    story = Story(object=POD, is_parent=False, objects=[POD], left_out=0, entries=[*entries], levels={}, bodies={})
    return [each.id for each in why_marks(story, marks)]


def test_a_report_of_a_kubelet_does_not_hide_who_made_the_object() -> None:
    made = mark("r1", "deleted"), mark("d2", "settling", "r1"), mark("r3", "created", "d2")
    report = mark("r4", "changed", fields=("+ status.startTime: 1", 'status.phase: "Pending" -> "Running"'))
    assert told(*made, report) == ["r1", "d2", "r3"]
    assert told(*made, report, mark("r5", "changed", fields=('spec.image: "a" -> "b"',))) == ["r5"]
    assert told(report) == ["r4"]
