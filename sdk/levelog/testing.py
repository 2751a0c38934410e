"""Tests of operators without servers: `with Simulation(op) as simulation`, or pytest's fixture `simulate`.

Needs what the processors and the sandbox need; `import levelog` alone does not load it.
"""

from levelog_sandbox import StatusError
from levelog_testing.readings import SeenEvent, SeenIntent, SeenLevel
from levelog_testing.simulation import Simulate, Simulation

__all__ = ["SeenEvent", "SeenIntent", "SeenLevel", "Simulate", "Simulation", "StatusError"]
