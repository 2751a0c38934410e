"""How old what `levelog levels` shows is."""

from datetime import timedelta

import pytest

from levelog_cli.printing.columns import print_age
from levelog_history.pastlevels import LevelsNow
from rigs.leasing import SCOPE
from rigs.webs import NOON

HEARD = "last contact: pods, 2026-01-01 12:00:00 UTC, "


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (4, ""),
        (119, ""),
        (3723, f"{HEARD}1:02:03 ago; do ingest, NATS and a processor run?\n"),
    ],
)
def test_the_last_contact_is_told_once_it_is_older_than_two_bookmarks_are_apart(
    seconds: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = LevelsNow(scopes=[SCOPE], lines=[], skipped=[], silent=[], unlisted=[], contacts={1: ("pods", NOON)})
    print_age(levels, NOON + timedelta(seconds=seconds))
    assert capsys.readouterr() == ("", said)
