"""The outbox of one application, and who works on it."""

from msgspec import Struct

from levelog_actuator.limits import ActuatorSettings
from levelog_store.connect.database import Database
from levelog_store.rows import Scope


class Outbox(Struct, frozen=True):
    """The intents of one application, as one actuator claims them."""

    database: Database
    scope: Scope
    owner: str
    """By which the actuator's claims are known."""
    settings: ActuatorSettings
