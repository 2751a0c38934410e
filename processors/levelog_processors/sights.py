"""What a level is compared by: most levels by all that they read, those of children by what counts of it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from levelog.children import ChildrenView
from levelog_processors.program import BoundView
from levelog_store.rows import IndexKey

Contents: TypeAlias = Mapping[IndexKey, Sequence[bytes]]

Sight: TypeAlias = Callable[[Contents], tuple[Contents, bytes]]
"""From what was read to what of it counts: contents that count as they are, and the sum of the others."""


def sight(view: BoundView, parent_uid: str, desired: bytes | None) -> Sight | None:
    """How a level with this desired value sees what it reads; None: as it is.

    A level of children does not see fields that no manifest sets, so that they wake nothing.
    """
    if not isinstance(view.handler, ChildrenView):
        return None
    return partial(view.handler.sight, desired or b"", parent_uid)
