"""Mistakes in tests of operators: both type checkers report each line that is marked, and no other."""

from levelog import Operator
from levelog.testing import Simulate, Simulation

op = Operator("webs")


def with_a_simulation(simulate: Simulate) -> None:
    simulation = simulate("webs")  # error: an operator
    simulation.advance(60)  # error: a timedelta
    simulation.level("pods", "shop")  # error: namespace and name
    simulation.delete("Pod", "a")  # error: a class
    simulation.calls["converge"] = 1 if simulation.level("pods", "", "a").state else 0  # error: status
    simulation.now = None  # error: only advance moves it
    Simulation(op, echoes=True)  # error: no such option
