"""Kopf's names on levelog: `from levelog.compat import kopf` in place of `import kopf`. See docs/from-kopf.md.

Written from Kopf's documentation and behaviour; no code of it is in here.
"""

from importlib import import_module
from typing import Any, TypeAlias

from levelog.compat.kopf.decorators import NO_WEBHOOKS, daemon, index, on, register, subhandler, timer
from levelog.compat.kopf.filters import all_, any_, none_, not_
from levelog.compat.kopf.given.events import event, exception, info, warn
from levelog.compat.kopf.given.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    build_object_reference,
    build_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from levelog.compat.kopf.given.keywords import Body, DiffItem, Meta, Patch, ReadOnly
from levelog.compat.kopf.given.lookups import KopfIndex as Index
from levelog.compat.kopf.given.lookups import KopfStore as Store
from levelog.compat.kopf.given.memos import Memo
from levelog.compat.kopf.given.words import (
    BodyEssence,
    ConnectionInfo,
    DiffOperation,
    FieldPath,
    FieldSpec,
    HandlerId,
    LocalObjectLogger,
    Logger,
    LoginError,
    ObjectLogger,
    ObjectReference,
    OwnerReference,
    PatchFn,
    RawBody,
    RawEvent,
    RawEventType,
    Reason,
)
from levelog.compat.kopf.handlererrors import (
    ErrorsMode,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
)
from levelog.compat.kopf.kinds.lasting import AsyncDaemonStopperChecker, DaemonStopped, SyncDaemonStopperChecker
from levelog.compat.kopf.kopftargets import ResourceMarker
from levelog.compat.kopf.modules import operator_in
from levelog.compat.kopf.running import operator, run
from levelog.compat.kopf.subhandlers import execute
from levelog.compat.kopf.tuning import OperatorSettings, UnusedStorage
from levelog.kinds import ServedKind
from levelog.selectors import ABSENT, PRESENT
from levelog_base.errors import OperatorError

Annotations: TypeAlias = ReadOnly
Labels: TypeAlias = ReadOnly
Resource: TypeAlias = ServedKind
Spec: TypeAlias = ReadOnly
Status: TypeAlias = ReadOnly
Diff: TypeAlias = tuple[DiffItem, ...]
AnnotationsDiffBaseStorage: TypeAlias = UnusedStorage
AnnotationsProgressStorage: TypeAlias = UnusedStorage
DiffBaseStorage: TypeAlias = UnusedStorage
MultiDiffBaseStorage: TypeAlias = UnusedStorage
MultiProgressStorage: TypeAlias = UnusedStorage
ProgressStorage: TypeAlias = UnusedStorage
SmartProgressStorage: TypeAlias = UnusedStorage
StatusDiffBaseStorage: TypeAlias = UnusedStorage
StatusProgressStorage: TypeAlias = UnusedStorage

EVERYTHING = ResourceMarker.EVERYTHING

_RUN = "a task of your own awaits `kopf.operator()`: docs/embedding.md"
_LOGIN = "levelog logs in by itself, with KUBECONFIG or as the service account of its pod"
_LIFECYCLE = "handlers of one object run side by side, and none is chosen before another"
_REGISTRY = "the handlers of a file are one operator, and there is no other registry"
_TESTING = "KopfRunner runs a file on a cluster: levelog.testing.Simulation runs it without one, docs/from-kopf.md"
_REFUSED = {
    "DaemonStoppingReason": "stopped.reason is 'unwanted', 'shutdown' or 'lost'",
    "ProgressRecord": "progress is in the log and in SQL: `levelog levels`, docs/sql.md",
    "AiohttpSession": "take a client of your own in a start-up handler, and put it into memo",
    "SSLPeer": NO_WEBHOOKS,
    "UserInfo": NO_WEBHOOKS,
    "Headers": NO_WEBHOOKS,
    "Operation": NO_WEBHOOKS,
    "AdmissionError": NO_WEBHOOKS,
    "login_via_async_client": _LOGIN,
    "login_via_client": _LOGIN,
    "login_via_pykube": _LOGIN,
    "login_with_kubeconfig": _LOGIN,
    "login_with_service_account": _LOGIN,
    "run_tasks": _RUN,
    "spawn_tasks": _RUN,
    "configure": "levelog logs as --log-format says: docs/configuration.md",
    "LogFormat": "levelog logs as --log-format says: docs/configuration.md",
    "lifecycles": _LIFECYCLE,
    "get_default_lifecycle": _LIFECYCLE,
    "set_default_lifecycle": _LIFECYCLE,
    "OperatorRegistry": _REGISTRY,
    "get_default_registry": _REGISTRY,
    "set_default_registry": _REGISTRY,
    "testing": _TESTING,
    "KopfRunner": _TESTING,
}


def __getattr__(name: str) -> Any:
    """Load Kopf's command line; say of names that mean nothing here what to do instead. Raises OperatorError."""
    if name == "cli":  # which loads the command line
        return import_module("levelog.compat.kopf.cli")
    sentence = _REFUSED.get(name, NO_WEBHOOKS if name.startswith("Webhook") else "")
    if sentence:
        raise OperatorError(f"kopf.{name}: {sentence}")
    raise AttributeError(f"levelog.compat.kopf has no {name!r}; docs/from-kopf.md lists what it has")


__all__ = [
    "ABSENT",
    "EVERYTHING",
    "PRESENT",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "AsyncDaemonStopperChecker",
    "Body",
    "BodyEssence",
    "ConnectionInfo",
    "DaemonStopped",
    "Diff",
    "DiffBaseStorage",
    "DiffItem",
    "DiffOperation",
    "ErrorsMode",
    "FieldPath",
    "FieldSpec",
    "HandlerId",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Index",
    "Labels",
    "LocalObjectLogger",
    "Logger",
    "LoginError",
    "Memo",
    "Meta",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "ObjectLogger",
    "ObjectReference",
    "OperatorSettings",
    "OwnerReference",
    "Patch",
    "PatchFn",
    "PermanentError",
    "ProgressStorage",
    "RawBody",
    "RawEvent",
    "RawEventType",
    "Reason",
    "Resource",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "Store",
    "SyncDaemonStopperChecker",
    "TemporaryError",
    "adjust_namespace",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "build_object_reference",
    "build_owner_reference",
    "daemon",
    "event",
    "exception",
    "execute",
    "harmonize_naming",
    "index",
    "info",
    "label",
    "none_",
    "not_",
    "on",
    "operator",
    "operator_in",
    "register",
    "remove_owner_reference",
    "run",
    "subhandler",
    "timer",
    "warn",
]
