"""What a reconcile function says that it writes is all that it may write."""

from collections.abc import Iterator
from typing import Any

from levelog import Intent, Level, Operator, apply, delete, patch, patch_status
from levelog.testing import Simulation
from rigs.kinds import ConfigMap, Web, web
from rigs.simulated import run_with, simulated


class Fragment:
    """No resource."""


def operator(*, writes: Any) -> Operator:
    """Parents named `a` ask for what was declared, the others for something else."""
    op = Operator("webs")

    @op.view
    def states(web: Web) -> Level[int]:
        return Level(desired=1, actual=0)

    @op.reconcile(states, writes=writes)
    def write(web: Web) -> Iterator[Intent]:
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}})
        if web.metadata.name != "a":
            yield delete(ConfigMap, "b")
        if web.metadata.name == "c":
            yield patch_status(web, {"ready": True})

    return op


def test_an_intent_that_was_not_declared_fails_its_level_and_nothing_of_its_round_is_written() -> None:
    with simulated(operator(writes={ConfigMap: ["apply"]}), web("a"), web("b")) as simulation:
        assert [intent.target for intent in simulation.intents] == ["configmaps/default/a"]
        refused = simulation.level("states", "default", "b")
        assert refused.status == "failed"
        assert (
            "delete of ConfigMap b: writes= of write does not name it, so that the actuator may lack the right: "
            'declare it, @op.reconcile(states, writes={ConfigMap: ["apply", "delete"]}), '
            "and grant what `levelog rbac` prints"
        ) in refused.reason


def test_the_declaration_that_is_missing_names_other_classes_too() -> None:
    with simulated(operator(writes={ConfigMap: ["apply", "delete"]}), web("c")) as simulation:
        reason = simulation.level("states", "default", "c").reason
    assert 'writes={ConfigMap: ["apply", "delete"], Web: ["patch_status"]}' in reason


def test_a_function_that_declares_nothing_may_write_what_its_operator_knows() -> None:
    with Simulation(operator(writes=None), operator_that_reads_config_maps()) as simulation:
        run_with(simulation, web("b"))
        reason = simulation.level("states", "default", "b").reason
        assert "no Resource class says where v1 ConfigMap" in reason
        assert reason.endswith('writes={ConfigMap: ["apply"]}); there are: example.com/v1 Web')


def test_a_write_that_has_no_json_form_and_one_to_an_object_that_is_not_there_are_named() -> None:
    op = Operator("webs")

    @op.view
    def odd(web: Web) -> Level[int]:
        return Level(desired=1, actual=0)

    @op.view
    def absent(web: Web) -> Level[int]:
        return Level(desired=1, actual=0)

    @op.reconcile(odd, writes={ConfigMap: ["apply"]})
    def write(web: Web) -> Iterator[Intent]:
        metadata = {"name": "a"}
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": Fragment()}})

    @op.reconcile(absent, writes={ConfigMap: ["patch"]})
    def change(web: Web) -> Iterator[Intent]:
        yield patch(ConfigMap, "none", {"data": {"a": "b"}})

    with simulated(op, web("a")) as simulation:
        reason = simulation.level("odd", "default", "a").reason
        assert reason.endswith("apply of ConfigMap a: Encoding objects of type Fragment is unsupported")
        level = simulation.level("absent", "default", "a")
        assert (level.status, level.reason) == ("drifting", "patch configmaps/default/none: the object is not there")


def operator_that_reads_config_maps() -> Operator:
    other = Operator("other")

    @other.index
    def names(config: ConfigMap) -> Iterator[tuple[str, str]]:
        yield config.metadata.name, ""

    return other
