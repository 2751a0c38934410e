"""Which record gave a field its value."""

from typing import Any

import pytest

from levelog_base.errors import ConfigurationError
from levelog_history.blame import Blame
from levelog_history.revisions import Revision, Revisions
from rigs.webs import deleted, logged, web


def blamed(*records: Any, field: str = "spec") -> list[tuple[str, Any, int]]:
    revisions, blame = Revisions(lambda _: True), Blame()
    for each in logged(records):
        for revision in revisions.take(each):
            assert isinstance(revision, Revision)
            blame.take(revision)
    return [(path, value, revision.sequence) for path, value, revision in blame.of(field)]


def test_a_field_keeps_its_record_until_its_value_changes() -> None:
    webs = [web("shop", n, replicas=r, image=i) for n, (r, i) in enumerate([(1, "a"), (2, "a"), (2, "b"), (2, "b")], 1)]
    assert blamed(*webs) == [("spec.image", "b", 3), ("spec.replicas", 2, 2)]


def test_a_value_that_came_back_is_of_the_record_that_brought_it_back() -> None:
    webs = [web("shop", n, replicas=r) for n, r in enumerate((1, 2, 1), 1)]
    assert blamed(*webs, field="spec.replicas") == [("spec.replicas", 1, 3)]


def test_an_object_that_was_made_anew_has_nothing_of_the_one_before() -> None:
    first, again = web("shop", 1), web("shop", 3, uid="other")
    assert {number for _, _, number in blamed(first, deleted(first, 2), again)} == {3}
    assert {number for _, _, number in blamed(first, again)} == {2}


def test_the_parts_of_a_field_are_meant_and_none_of_a_longer_name() -> None:
    shop = web("shop", 1, labels={"app": "a", "app2": "b"})
    assert blamed(shop, field="metadata.labels.app") == [("metadata.labels.app", "a", 1)]
    assert len(blamed(shop, field="metadata.labels")) == 2
    with pytest.raises(ConfigurationError, match=r"default/shop has no field metadata.label: it has metadata.labels"):
        blamed(shop, field="metadata.label")
