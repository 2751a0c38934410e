"""Tests of operators without servers: `with Simulation(op) as simulation`.

Needs what the processors and the sandbox need; `import levelog` alone does not load it.
"""

from levelog_testing import SeenIntent, SeenLevel, Simulation

__all__ = ["SeenIntent", "SeenLevel", "Simulation"]
