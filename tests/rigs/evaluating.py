"""Views that are called by themselves, for tests without tables."""

from collections.abc import Mapping

from levelog_base.secrets.redaction import Redactor
from levelog_processors.bound import BoundView
from levelog_processors.decide.facts import Facts, level_before
from levelog_processors.decide.lookups import IndexMemory
from levelog_processors.decide.viewcalls import Evaluation
from levelog_store.decide.decisions import PendingWake
from rigs.storedobjects import stored_object
from rigs.webs import NOON


def evaluation_of(
    view: BoundView,
    body: bytes,
    memory: IndexMemory,
    *,
    namespaces: Mapping[str, tuple[str, ...]] | None = None,
) -> Evaluation:
    """The first call of a view for a parent, which looks up what is in memory."""
    name = f"{view.parents}/default/shop"
    wake = PendingWake(view=view.name, parent=name, partition=0, cause=1, generation=1, due_at=None)
    parent = stored_object(name, uid="uid-shop", body=body)
    before = level_before(wake, parent, None)
    facts = Facts(wake=wake, view=view, parent=parent, before=before, inputs="", reads_digest="", now=NOON)
    return Evaluation(facts, namespaces=namespaces or {}, redactor=Redactor(), memory=memory)
