"""What pages tell: how it came to an object, by the last record that says something; which levels are on which page."""

from levelog_base.wire.objects import Application
from levelog_history.revisions import Revision
from levelog_store.look.levelpages import LevelQuery
from levelog_store.look.overview import LevelLine
from levelog_ui.marks import Mark, why_marks
from levelog_ui.places import LevelPlace, page_of
from levelog_ui.stories import Story
from rigs.webs import NOON

POD = "pods/default/shop-1"


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


def test_pages_hold_each_level_once_in_the_order_that_was_asked_for() -> None:
    of = Application("shops")
    lines = [
        LevelLine(view=f"shops/{'ab'[n % 2]}", parent=f"webs/x/{n:02}", status="failed", round=n) for n in range(20)
    ]
    wanted = LevelQuery(view="a", order="round")
    pages = [page_of([LevelPlace(of, each) for each in lines], wanted, skip=skip, most=4) for skip in range(0, 12, 4)]
    assert [[each.line.round for each in page] for page in pages] == [[18, 16, 14, 12], [10, 8, 6, 4], [2, 0]]
