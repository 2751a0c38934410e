"""The actuator: carries out decided intents, and says in the log what came of them."""

from levelog_actuator.actuator import Actuator, WriteCounts
from levelog_actuator.limits import ActuatorSettings

__all__ = ["Actuator", "ActuatorSettings", "WriteCounts"]
