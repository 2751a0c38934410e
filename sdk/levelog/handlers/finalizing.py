"""The operator's finalizer: added while handlers need the object, removed once they have handled its deletion."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from levelog.handlers.edgehandlers import EdgeHandler, is_wanted
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.forobjects import CalledHandler, DecidedHandler, Phase
from levelog.handlers.indexers import MARK, IndexHandler
from levelog.handlers.injection import Lender
from levelog.handlers.readers import ObjectReader
from levelog.handlers.signatures import declared
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler
from levelog.intents import Intent, patch
from levelog.levels import Level, Levels
from levelog.resources import ResourceBase
from levelog.selectors import Selector
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest
from levelog_base.wire.objects import GroupResource

PREFIX: Final = "levelog/"
"""Begins the finalizer of each operator."""
INDEX: Final = f"{MARK}finalizing/"
"""Begins the name of the index of what a finalizer has to be put on; the resource ends it."""
VIEW: Final = "_finalizer"
"""Ends the name of the view of where the finalizer is."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""What may follow the slash of a finalizer. Origin: IsQualifiedName of apimachinery."""
_CODE: Final = "finalizing 2"
"""Stands for this module in fingerprints: raised when the same objects lead to other writes."""


def finalizer_of(operator: str) -> str:
    """The one finalizer of an operator. Raises OperatorError for a name that no finalizer can have."""
    if not _NAME.fullmatch(operator):
        raise OperatorError(
            f"operator {operator!r}: its finalizer would be {PREFIX + operator!r}, which the API refuses: name it with "
            "up to 63 letters, digits, -, _ and ., and a letter or digit at both ends"
        )
    return PREFIX + operator


def finalizing_name(resource: GroupResource) -> str:
    """Name of the index of a resource's objects that the finalizer has to be put on, or that it holds."""
    return f"{INDEX}{resource}"


class FinalizingIndex(IndexHandler):
    """Says by an object's uid whether handlers have to wait for its finalizer, or it is being deleted and has it."""

    def __init__(self, cls: type[ResourceBase], finalizer: str, handlers: Sequence[CalledHandler]) -> None:
        def entries(found: Mapping[str, Any]) -> Iterator[tuple[str, Phase]]:
            metadata, is_on = found["metadata"], _is_on(finalizer, found)
            if metadata.get("deletionTimestamp"):
                if is_on:
                    yield metadata["uid"], "finalizing"
            elif not is_on and any(is_wanted(each, found) for each in handlers):
                yield metadata["uid"], "waits"

        super().__init__(
            entries,
            ObjectReader(cls, Selector(), is_plain=True),
            Iterator[tuple[str, Phase]],
            name=finalizing_name(cls.resource_type.group_resource),
            code=digest(_CODE, finalizer, *(value_fingerprint(each.options.selector) for each in handlers)),
        )


def finalizer_view(
    name: str,
    finalizer: str,
    holding: Sequence[DecidedHandler],
    inspect_view: Callable[..., ViewHandler],
) -> ViewHandler:
    """The view of whether the finalizer is on an object, against whether one of the handlers wants it there.

    Daemons want it until their last run has ended: what it asked for is decided on before, and goes first. Without any,
    its parents are the objects that have it from handlers that were removed.
    """
    handlers = [each for each in holding if isinstance(each, EdgeHandler)]
    staying = [each for each in holding if not isinstance(each, EdgeHandler)]

    def view(parent: Mapping[str, Any], **read: Any) -> Level[bool]:
        metadata, is_on = parent["metadata"], _is_on(finalizer, parent)
        wanting = [each for each in handlers if is_wanted(each, parent)]
        if metadata.get("deletionTimestamp"):  # the API takes no finalizer any more
            uid = metadata["uid"]
            open_ones = [each for each in wanting if not each.is_ended(list(read[each.calls_name][uid]))]
            standing = [read["levels"].get(each) for each in awaited]
            is_busy = any(each is not None and each.status == "settling" for each in standing)
            return Level(desired=is_on and (is_busy or bool(open_ones)), actual=is_on)
        is_kept = bool(wanting) or any(is_wanted(each, parent) for each in staying)
        return Level(desired=is_kept, actual=is_on)

    awaited = tuple(sorted(each.name for each in staying))

    annotations: dict[str, Any] = {"parent": Mapping[str, Any]}
    annotations |= {each.calls_name: each.calls_type for each in handlers}
    annotations |= {"levels": Levels} if awaited else {}
    selector = Selector() if holding else Selector(when=partial(_is_on, finalizer))
    made = inspect_view(declared(view, name, annotations, Level[bool]), selector=selector)
    made.is_made, made.stands_on = True, awaited
    filters = [digest(each.name, value_fingerprint(each.options.selector)) for each in (*handlers, *staying)]
    made.fingerprint = digest(_CODE, name, finalizer, str(made.resource.group_resource), *filters)
    return made


def _is_on(finalizer: str, found: Mapping[str, Any]) -> bool:
    return finalizer in (found["metadata"].get("finalizers") or ())


def finalizer_writer(cls: type[ResourceBase], finalizer: str, view: ViewHandler, lender: Lender) -> ReconcileHandler:
    """The reconcile function of such a view: it puts the finalizer on or takes it off, for the ones that it saw."""

    async def write(parent: Mapping[str, Any], level: Level[bool]) -> list[Intent]:  # async, so that it needs no thread
        metadata = parent["metadata"]
        operations = operations_for(list(metadata.get("finalizers") or ()), finalizer, is_wanted=level.desired)
        return [patch(cls, metadata["name"], operations, namespace=metadata.get("namespace", ""))]

    write.__name__ = f"{view.name}.write"
    made = ReconcileHandler(write, view, {cls: ["patch"]}, lender)
    made.fingerprint = digest(_CODE, view.name)
    return made


def operations_for(finalizers: Sequence[str], finalizer: str, *, is_wanted: bool) -> list[dict[str, Any]]:
    """The JSON patch that puts a finalizer on, or takes it off; other finalizers stay as they are.

    It tests the finalizers alone: what else of the object changes meanwhile, such as its status, does not refuse it.
    """
    path = "/metadata/finalizers"
    test = {"op": "test", "path": path, "value": list(finalizers) or None}
    if not is_wanted:
        return [test, {"op": "remove", "path": f"{path}/{finalizers.index(finalizer)}"}]
    if finalizers:
        return [test, {"op": "add", "path": f"{path}/-", "value": finalizer}]
    return [test, {"op": "add", "path": path, "value": [finalizer]}]
