"""The actuator: claims decided intents, carries them out, and records the results."""

from levelog_actuator.actuator import Actuator
from levelog_actuator.outbox import ActuatorSettings

__all__ = ["Actuator", "ActuatorSettings"]
