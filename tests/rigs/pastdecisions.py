"""Decisions as they are read back, for tests of what is told of them."""

from typing import Any

from levelog_store.decide.decisions import Basis, Decision
from levelog_store.fold.changes import Causes
from rigs.webs import NOON

NONE = Causes((), has_more=False)


def decision(view: str, parent: str, cause: int = 1, **told: Any) -> Decision:
    """One that a record asked for and that wrote nothing; `told` has what is otherwise."""
    usual: dict[str, Any] = {
        "ordinal": 1,
        "parent_uid": "uid",
        "parent_sequence": 1,
        "causes": Causes((cause,), has_more=False),
        "suppressed": NONE,
        "is_called": True,
        "reads": [],
        "intents": [],
        "fingerprint": "code",
        "decided_at": NOON,
        "basis": Basis(),
        "status": "in_sync",
    }
    return Decision(view=view, parent=parent, cause=cause, **usual | told)
