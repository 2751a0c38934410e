"""Tests of operators without servers: `with Simulation(op) as simulation`, or pytest's fixture `simulate`.

Needs what the processors and the sandbox need; `import levelog` alone does not load it.
"""

from levelog_sandbox import StatusError
from levelog_testing.simulation import Simulate, Simulation
from levelog_testing.views import SeenEvent, SeenIntent, SeenLevel

__all__ = ["SeenEvent", "SeenIntent", "SeenLevel", "Simulate", "Simulation", "StatusError"]
