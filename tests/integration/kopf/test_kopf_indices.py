"""`kopf.index` on levelog: what handlers of a Kopf file look up by the names of their parameters."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from levelog.compat.kopf.kinds import lasting
from levelog.indices import LiveIndex
from levelog.testing import Simulation
from rigs.kopffiles import kopf_run, load_kopf
from rigs.waiting import until

LOOKING = """
@kopf.on.update("example.com", "v1", "shops", field="spec.ask")
def asks(by_node: kopf.Index, spec, **kwargs):
    assert "others" not in kwargs
    ask = spec["ask"]
    told.append((sorted(by_node), len(by_node), sorted(by_node.get(ask, [])), ask in by_node))

@kopf.index("pods", labels={"app": kopf.PRESENT})
async def by_node(spec, name, namespace, **_):
    return {spec.get("nodeName", ""): [namespace, name]}

@kopf.index("pods")
def others(name, **_):
    return name

@kopf.on.create("example.com", "v1", "shops")
async def all_of_them(others, by_node, **_):
    told.append(sorted(others.get(None, [])))

@kopf.timer("example.com", "v1", "shops", interval=60, initial_delay=30)
def looks(others, **_):
    told.append(("timer", list(others[None])))
"""


def pod(simulation: Simulation, name: str, node: str, *, app: str | None = "a") -> None:
    labels = {"app": app} if app else {}
    simulation.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        }
    )


def test_handlers_look_up_what_objects_of_another_resource_gave(tmp_path: Path) -> None:
    with kopf_run(tmp_path, LOOKING) as kopf:
        pod(kopf.simulation, "one", "n1")
        pod(kopf.simulation, "two", "n1")
        pod(kopf.simulation, "three", "n2", app=None)
        assert kopf.apply() == [["one", "three", "two"]]
        assert kopf.apply(ask="n1") == [(["n1"], 1, [["default", "one"], ["default", "two"]], True)]
        pod(kopf.simulation, "three", "n2")
        assert kopf.apply(ask="n2") == [(["n1", "n2"], 2, [["default", "three"]], True)]
        assert kopf.apply(ask="n3") == [(["n1", "n2"], 2, [], False)]
        kopf.simulation.advance(timedelta(seconds=31))
        assert kopf.told() == [("timer", ["one", "three", "two"])]


def test_handlers_of_starts_and_daemons_look_them_up_too(tmp_path: Path) -> None:
    source = """
    @kopf.index("pods")
    def pods(name, **_):
        return name

    @kopf.on.resume("example.com", "v1", "shops")
    def resumed(pods, **_):
        told.append(("resumed", sorted(pods[None])))

    @kopf.daemon("example.com", "v1", "shops")
    async def follow(pods, **_):
        told.append(("follows", sorted(pods[None])))
    """
    with kopf_run(tmp_path, source, with_daemons=True) as kopf:
        pod(kopf.simulation, "one", "n1")
        assert kopf.apply() == [("follows", ["one"])]
        pod(kopf.simulation, "two", "n1")
        assert kopf.start() == [("resumed", ["one", "two"])]


def test_a_change_of_an_index_is_no_event_for_handlers_that_look_it_up(tmp_path: Path) -> None:
    with kopf_run(tmp_path, LOOKING) as kopf:
        kopf.apply()
        pod(kopf.simulation, "one", "n1")
        kopf.simulation.run()
        assert kopf.told() == []


@pytest.mark.parametrize("view", ["asks_spec_ask", "all_of_them", "looks"])
def test_a_handler_waits_until_the_indices_that_it_looks_up_are_filled(tmp_path: Path, view: str) -> None:
    operator = load_kopf(tmp_path, LOOKING)
    declared = {parameter.index.name for parameter in operator.views[view].indices}
    assert declared & {"by_node", "others"}  # a view is blocked until what it declares is listed


def test_what_a_handler_changes_in_a_value_is_its_own(tmp_path: Path) -> None:
    source = """
    @kopf.index("example.com", "v1", "shops")
    def sizes(name, spec, **_):
        return {name: {"size": [spec.get("size")]}} if spec.get("size") else None

    @kopf.on.create("example.com", "v1", "shops")
    @kopf.on.update("example.com", "v1", "shops")
    def looks(sizes, **_):
        for key in sizes:
            for value in sizes[key]:
                value["size"].append("changed")
        told.append(repr(sizes))
        try:
            sizes["none"]
        except KeyError:
            told.append("no such key")
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == ["{'a': ({'size': [1]},)}", "no such key"]
        assert kopf.apply("b", metadata={"labels": {"x": "y"}})[0] == "{'a': ({'size': [1]},)}"
        assert kopf.apply() == ["{}", "no such key"]  # as None was returned for what it has become
        assert kopf.apply(size=2)[0] == "{'a': ({'size': [2]},)}"
        assert kopf.delete() == []
        assert kopf.apply("b") == ["{}", "no such key"]


def test_what_is_no_dict_is_one_value(tmp_path: Path) -> None:
    source = """
    @kopf.index("example.com", "v1", "shops")
    def bodies(body, **_):
        return body

    @kopf.index("example.com", "v1", "shops")
    def names(name, **_):
        return {(name, "x"): {name}}

    @kopf.on.create("example.com", "v1", "shops")
    def looks(bodies, names, **_):
        told.append([each["metadata"]["name"] for each in bodies[None]])
        told.append({key: list(values) for key, values in names.items()})
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply() == [["a"], {("a", "x"): [["a"]]}]


def test_an_object_for_which_the_function_fails_keeps_its_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    @kopf.index("example.com", "v1", "shops", errors=kopf.ErrorsMode.PERMANENT)
    async def sizes(name, spec, **_):
        if spec["size"] > 9:
            raise ValueError("too big")
        return {name: spec["size"]}

    @kopf.timer("example.com", "v1", "shops", interval=60)
    def looks(sizes, name, **_):
        told.append(list(sizes[name]))
    """
    with kopf_run(tmp_path, source) as kopf:
        assert kopf.apply(size=1) == [[1]]
        kopf.apply(size=10)
        kopf.simulation.advance(timedelta(seconds=61))
        assert kopf.told() == [[1]]
    assert "ValueError: too big (shops.py line 8)" in caplog.text


async def test_an_index_that_cannot_be_read_once_is_looked_up_as_it_is_afterwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Pods:
        reads = 0

        async def everything(self) -> Mapping[Any, Collection[Any]]:
            self.reads += 1
            if self.reads == 1:
                raise ValueError("no such key")
            return {None: ["one"]}

    monkeypatch.setattr(lasting, "REFRESH_SECONDS", 0)
    values: dict[str, Mapping[Any, Collection[Any]]] = {"pods": {}}
    refreshing = asyncio.create_task(lasting.refresh(values, {"pods": cast("LiveIndex[Any, Any]", Pods())}))
    await until(lambda: bool(values["pods"]) or refreshing.done(), "the second read")
    assert (values, refreshing.cancel()) == ({"pods": {None: ["one"]}}, True)
    assert "index pods is looked up as it was: no such key" in caplog.text
