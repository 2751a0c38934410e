"""Running a machine: always the same examples, and as many as the environment asks for."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from rigs.machine.checks import Broken
from rigs.machine.daemons.daemonmachine import DaemonsMachine
from rigs.machine.daemons.daemonworld import DaemonLaboratory
from rigs.machine.edges.edgemachine import EdgesMachine
from rigs.machine.edges.edgeworld import EdgeLaboratory
from rigs.machine.machine import LevelsMachine
from rigs.machine.steps import Step, SteppedMachine
from rigs.machine.world import Laboratory

EXAMPLES_VARIABLE = "LEVELOG_TEST_EXAMPLES"
"""How many times as many examples as usual, for nightly runs; what fails is made smaller then, which takes time."""

STEPS = 40


def run_machine(laboratory: Laboratory, examples: int) -> None:
    """Run examples. Raises Broken, and prints the steps that lead there."""
    times = int(os.environ.get(EXAMPLES_VARIABLE, "1"))
    phases = [Phase.generate] if times == 1 else [Phase.generate, Phase.shrink]
    _run(laboratory, examples * times, phases, lambda: machine_in(laboratory))


def machine_in(laboratory: Laboratory) -> SteppedMachine:
    """A new machine, of the kind that the laboratory is for."""
    if isinstance(laboratory, DaemonLaboratory):
        return DaemonsMachine(laboratory)
    return EdgesMachine(laboratory) if isinstance(laboratory, EdgeLaboratory) else LevelsMachine(laboratory)


def find(laboratory: Laboratory, most_examples: int) -> tuple[Broken, list[Step]]:
    """The invariant that is found broken, and the steps that lead there. Raises LookupError if none is."""
    machines: list[SteppedMachine] = []

    def new_machine() -> SteppedMachine:
        machines.append(machine_in(laboratory))
        return machines[-1]

    # Hypothesis repeats what failed, and calls it flaky where the repetition, in other milliseconds, does not fail.
    with suppress(Broken, Flaky):
        _run(laboratory, most_examples, [Phase.generate], new_machine)
    for each in machines:
        if each.broken is not None:
            return each.broken, each.steps
    raise LookupError(f"no invariant is found broken within {most_examples} examples")


def repeat(laboratory: Laboratory, steps: Iterable[Step]) -> Broken:
    """The invariant that the steps break. Raises LookupError if they break none."""
    try:
        machine_in(laboratory).take(steps)
    except Broken as broken:
        return broken
    raise LookupError("no invariant is broken by the steps that are kept")


def _run(
    laboratory: Laboratory,
    examples: int,
    phases: list[Phase],
    machine: Callable[[], SteppedMachine] | None = None,
) -> None:
    # Hypothesis seeds the examples with the text of this function: changed, it tries others.
    def new_machine() -> RuleBasedStateMachine:
        return machine() if machine is not None else LevelsMachine(laboratory)

    run_state_machine_as_test(
        cast("type[RuleBasedStateMachine]", new_machine),  # any callable that makes one will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example),
        ),
    )
