"""Running a machine: always the same examples, and as many as the environment asks for."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from rigs.machine.checks import Broken
from rigs.machine.daemons.daemonmachine import DaemonsMachine
from rigs.machine.daemons.daemonworld import DaemonWorld
from rigs.machine.edges.edgemachine import EdgesMachine
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.laboratory import Laboratory, StepWorld
from rigs.machine.machine import LevelsMachine
from rigs.machine.steps import Step, SteppedMachine
from rigs.machine.world import World

EXAMPLES_VARIABLE = "LEVELOG_TEST_EXAMPLES"
"""How many times as many examples as usual, for nightly runs; what fails is made smaller then, which takes time."""

_MACHINES: Final[dict[type[StepWorld], type[SteppedMachine[Any]]]] = {
    World: LevelsMachine,
    EdgeWorld: EdgesMachine,
    DaemonWorld: DaemonsMachine,
}
STEPS = 40
EXAMPLES_OF_A_SEED = 5


def run_machine(laboratory: Laboratory[Any], examples: int) -> None:
    """Run examples. Raises Broken, and prints the steps that lead there."""
    times = int(os.environ.get(EXAMPLES_VARIABLE, "1"))
    phases = [Phase.generate] if times == 1 else [Phase.generate, Phase.shrink]
    _run(lambda: machine_in(laboratory), examples * times, phases, first=0)


def machine_in(laboratory: Laboratory[Any]) -> SteppedMachine[Any]:
    """A new machine, of the kind that the laboratory is for."""
    return _MACHINES[laboratory.kind](laboratory)


def find(laboratory: Laboratory[Any], most_examples: int, first: int) -> tuple[Broken, list[Step]]:
    """The invariant that is found broken, and the steps that lead there. Raises LookupError if none is.

    A few examples are chosen by the seed `first`, as many by the next one, and so on.
    """
    machines: list[SteppedMachine[Any]] = []

    def new_machine() -> SteppedMachine[Any]:
        machines.append(machine_in(laboratory))
        return machines[-1]

    for each in range(first, first + most_examples // EXAMPLES_OF_A_SEED):
        # Hypothesis repeats what failed, and calls it flaky where the repetition, in other milliseconds, does not fail.
        with suppress(Broken, Flaky):
            _run(new_machine, EXAMPLES_OF_A_SEED, [Phase.generate], each)
        for machine in machines:
            if machine.broken is not None:
                return machine.broken, machine.steps
        machines.clear()
    raise LookupError(f"no invariant is found broken within {most_examples} examples")


def repeat(laboratory: Laboratory[Any], steps: Iterable[Step]) -> Broken:
    """The invariant that the steps break. Raises LookupError if they break none."""
    try:
        machine_in(laboratory).take(steps)
    except Broken as broken:
        return broken
    raise LookupError("no invariant is broken by the steps that are kept")


def _run(machine: Callable[[], SteppedMachine[Any]], examples: int, phases: list[Phase], first: int) -> None:
    """Run examples, chosen by the seed `first`."""

    def new_machine() -> RuleBasedStateMachine:
        return machine()

    run_state_machine_as_test(
        cast("type[RuleBasedStateMachine]", seed(first)(new_machine)),  # any callable that makes one will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example),
        ),
    )
