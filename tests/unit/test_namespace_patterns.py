"""Which namespaces a pattern takes, with Kopf's `!` for those that are left out."""

import pytest

from levelog_cli.servers.permissions import to_read
from levelog_ingest.namespaces import has_patterns, is_matched
from rigs.kinds import Web

NAMES = ["default", "team-a", "team-b", "team-test", "teams"]


@pytest.mark.parametrize(
    ("patterns", "matching"),
    [
        (["team-*"], ["team-a", "team-b", "team-test"]),
        (["team-?", "teams"], ["team-a", "team-b", "teams"]),
        (["!team-test", "team-*"], ["team-a", "team-b"]),
        (["!team-*"], ["default", "teams"]),
        (["default"], ["default"]),
    ],
)
def test_a_pattern_takes_what_it_is_like_and_leaves_out_what_is_excepted(
    patterns: list[str], matching: list[str]
) -> None:
    assert [name for name in NAMES if is_matched(name, patterns)] == matching
    assert has_patterns(patterns) is (patterns != ["default"])


def test_patterns_need_rights_in_all_namespaces_and_on_these() -> None:
    needed = [str(need.permission) for need in to_read([Web.resource_type], ["default", "team-*"])]
    assert needed == [
        f"{verb} {plural} in all namespaces"
        for plural in ("namespaces", "webs.example.com")
        for verb in ("list", "watch")
    ]
