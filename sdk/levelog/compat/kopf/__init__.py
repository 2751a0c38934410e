"""Kopf's names on levelog: `from levelog.compat import kopf` in place of `import kopf`. See docs/from-kopf.md.

Written from Kopf's documentation and behaviour; no code of it is in here.
"""

from typing import NoReturn

from levelog.compat.kopf.attempts import (
    ErrorsMode,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
)
from levelog.compat.kopf.decorators import on, timer
from levelog.compat.kopf.events import event, exception, info, warn
from levelog.compat.kopf.filters import all_, any_, none_, not_
from levelog.compat.kopf.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    build_object_reference,
    build_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from levelog.compat.kopf.keywords import Body, DiffItem, Memo, Meta, Patch, ReadOnly
from levelog.compat.kopf.tuning import OperatorSettings, UnusedStorage
from levelog.errors import OperatorError
from levelog.selectors import ABSENT, PRESENT

Annotations = Labels = Spec = Status = ReadOnly
Diff = tuple[DiffItem, ...]
AnnotationsDiffBaseStorage = AnnotationsProgressStorage = MultiDiffBaseStorage = MultiProgressStorage = UnusedStorage
SmartProgressStorage = StatusDiffBaseStorage = StatusProgressStorage = UnusedStorage

_REFUSED = {
    "EVERYTHING": "levelog records the resources that handlers name: write a decorator for each",
    "daemon": "there is no task for each object: a source, or a task of a start-up hook, docs/from-kopf.md",
    "index": "a handler cannot look up an index: make it one of levelog's, @op.index, and read it in a view: "
    "docs/indices.md",
    "WebhookServer": "levelog serves no webhooks: write rules into the definition, docs/custom-resources.md",
    "run": "an operator is run by `levelog run FILE`",
    "operator": "an operator is run by `levelog run FILE`",
    "register": "handlers inside of handlers are not supported: register each function by itself",
    "execute": "handlers inside of handlers are not supported: register each function by itself",
    "subhandler": "handlers inside of handlers are not supported: register each function by itself",
}


def __getattr__(name: str) -> NoReturn:
    """Say of names of Kopf that mean nothing here what to do instead. Raises OperatorError for them."""
    if name in _REFUSED:
        raise OperatorError(f"kopf.{name}: {_REFUSED[name]}")
    raise AttributeError(f"levelog.compat.kopf has no {name!r}; docs/from-kopf.md lists what it has")


__all__ = [
    "ABSENT",
    "PRESENT",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "Body",
    "Diff",
    "DiffItem",
    "ErrorsMode",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Labels",
    "Memo",
    "Meta",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "OperatorSettings",
    "Patch",
    "PermanentError",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "TemporaryError",
    "adjust_namespace",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "build_object_reference",
    "build_owner_reference",
    "event",
    "exception",
    "harmonize_naming",
    "info",
    "label",
    "none_",
    "not_",
    "on",
    "remove_owner_reference",
    "timer",
    "warn",
]
