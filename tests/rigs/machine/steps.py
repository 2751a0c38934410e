"""A machine that notes its steps, so that they can be kept and taken again."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Generic, NamedTuple, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from rigs.machine.checks import Broken
from rigs.machine.laboratory import Laboratory, StepWorld


class Step(NamedTuple):
    """A rule, and what it was given."""

    rule: str
    given: dict[str, Any]


def step(kind: Callable[..., Any], **strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule of Hypothesis that the machine notes when it is called."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def noting(machine: SteppedMachine[Any], **given: Any) -> None:
            machine.steps.append(Step(function.__name__, given))
            function(machine, **given)

        return kind(**strategies)(noting)

    return decorate


W = TypeVar("W", bound=StepWorld)


class SteppedMachine(RuleBasedStateMachine, Generic[W]):
    """Steps through one world of a laboratory; `broken` is the invariant that it found broken."""

    def __init__(self, laboratory: Laboratory[W]) -> None:
        super().__init__()
        self.world = laboratory.run(laboratory.new_world())
        self._laboratory = laboratory
        self.steps: list[Step] = []
        self.broken: Broken | None = None

    def holds(self) -> None:
        """Compare what is there with what should be, after each step. Raises Broken."""

    def take(self, steps: Iterable[Step]) -> None:
        """Do what a run did. Raises Broken."""
        for name, given in steps:
            getattr(self, name)(**given)
            self.holds()

    def _run(self, step: Any) -> Any:
        try:
            return self._laboratory.run(step)
        except Broken as broken:
            self.broken = broken
            raise
