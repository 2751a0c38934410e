"""Classes of resources and settings: frozen, with or without saying so, and with metadata of one's own."""

from datetime import datetime

from levelog import Level, Operator, Resource, Struct
from levelog.resources import Metadata


class Settings(Struct, frozen=True):
    region: str = "eu"


class Condition(Struct):
    type: str
    status: str = "Unknown"


class Status(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    names: tuple[str, ...] = ()


class MyMetadata(Metadata):
    generation: int = 0


class Claim(Resource, group="example.com", version="v1", plural="claims"):
    metadata: MyMetadata
    status: Status = Status()


class Expiring(Resource, group="example.com", version="v1", plural="expirings", frozen=True):
    expires_at: datetime
    settings: Settings = Settings()


op = Operator("claims")


@op.view
def seen(claim: Claim) -> Level[int]:
    return Level(desired=claim.metadata.generation, actual=len(claim.status.conditions))
