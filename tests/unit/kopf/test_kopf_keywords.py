"""Arguments of a Kopf handler: what a copy of them is."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from levelog.compat.kopf.given.keywords import Body

COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_a_copy_of_an_argument_is_of_its_kind_and_shares_no_content_with_the_object(
    copied: Callable[[Any], Any],
) -> None:
    known = {"metadata": {"name": "a"}, "spec": {"a": {"b": 1}}}
    body = Body(lambda: known)
    spec, whole = copied(body.spec), copied(body)
    assert (spec, whole) == ({"a": {"b": 1}}, known)
    spec["a"]["b"] = whole.spec["a"]["b"] = 2
    assert known["spec"] == {"a": {"b": 1}}
    assert (whole.metadata.name, dict(whole.spec)) == ("a", {"a": {"b": 2}})


def test_a_copy_stays_as_it_is_while_the_object_changes() -> None:
    known = {"spec": {"size": 1}}
    body = Body(lambda: known)
    copies = [copy.copy(body.spec), copy.deepcopy(body)["spec"]]
    known = {"spec": {"size": 2}}
    assert (body.spec["size"], [each["size"] for each in copies]) == (2, [1, 1])
