"""JSON has the parts that count of each value that is told."""

import sys
from importlib import import_module

import msgspec
from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_cli.printing.plain import SHOWN, TYPES, plain
from levelog_history.differences import Difference
from levelog_store.rows import Verdict


def test_json_holds_json_and_names_of_objects_as_they_are() -> None:
    verdict = Verdict(status="failed", round=2, desired=b'{"a":1}')
    shop = ObjectKey(group="example.com", resource="webs", namespace="default", name="shop")
    told = plain({("webs/pods", '"shop"'): (verdict,), "of": shop, "left": Difference("spec", before=1)})
    assert msgspec.json.decode(msgspec.json.encode(told)) == {
        'webs/pods["shop"]': [
            {"status": "failed", "reason": "", "round": 2, "desired": {"a": 1}, "actual": None, "drift": None}
        ],
        "of": "webs.example.com/default/shop",
        "left": {"path": "spec", "before": 1},
    }


def test_each_class_that_is_named_has_the_parts_that_are_named() -> None:
    import_module("levelog_cli.wiring.travel")  # loads what is told of
    rooms = [module for name, module in list(sys.modules.items()) if name.startswith("levelog_")]
    classes = {each.__name__: each for room in rooms for each in vars(room).values() if isinstance(each, type)}
    assert set(TYPES) <= {name for name, cls in classes.items() if issubclass(cls, Struct)}
    for name, parts in SHOWN.items():
        first = {part.rpartition("=")[2].partition(".")[0] for part in parts.split()}
        made = {"tallies", "refusals", "obstacles", "first"} if name == "CallComparison" else set[str]()
        assert first - made <= set(dir(classes[name])), name
