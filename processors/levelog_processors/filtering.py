"""Asking the filters of a view; where they are functions of the user, with a time limit and without I/O."""

from collections.abc import Callable
from typing import TypeVar

from levelog.handlers import VIEW_TIME
from levelog_processors.fence import Fence
from levelog_processors.program import BoundView

T = TypeVar("T")


def filtered(view: BoundView, ask: Callable[[], T]) -> T:
    """Call what asks the view's filters.

    Raises what they raise, and HandlerFault if one takes too long or does I/O.
    """
    if not view.handler.reader.selector.has_functions:
        return ask()
    return Fence(f"filter of view {view.name}", VIEW_TIME).run(ask)
