"""Users' tests of their operators, without servers; public as `levelog.testing`."""

from levelog_testing.simulation import Simulation
from levelog_testing.views import SeenIntent, SeenLevel

__all__ = ["SeenIntent", "SeenLevel", "Simulation"]
