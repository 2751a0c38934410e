"""levelog: level-triggered Kubernetes operators on a durable log."""

from levelog.edges import Diff
from levelog.effects import Call, GiveUp, Retry
from levelog.indices import Index, LiveIndex, Objects
from levelog.intents import Intent, apply, call, create, delete, event, patch, patch_status
from levelog.levels import Drift, Level
from levelog.operator import Operator
from levelog.resources import (
    CEL,
    AnnotatedResource,
    External,
    LabelledResource,
    Manifest,
    Owner,
    Resource,
    Struct,
)
from levelog.selectors import ABSENT, PRESENT
from levelog_base.errors import LevelogError, OperatorError

__all__ = [
    "ABSENT",
    "CEL",
    "PRESENT",
    "AnnotatedResource",
    "Call",
    "Diff",
    "Drift",
    "External",
    "GiveUp",
    "Index",
    "Intent",
    "LabelledResource",
    "Level",
    "LevelogError",
    "LiveIndex",
    "Manifest",
    "Objects",
    "Operator",
    "OperatorError",
    "Owner",
    "Resource",
    "Retry",
    "Struct",
    "apply",
    "call",
    "create",
    "delete",
    "event",
    "patch",
    "patch_status",
]
