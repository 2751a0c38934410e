"""The rows of one round: what its reconcile function asked for, or why that cannot be sent."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from levelog.errors import ConfigurationError
from levelog.faults import fault_reason
from levelog.objects import ObjectKey
from levelog.redaction import Redactor
from levelog_processors.deciding import Case
from levelog_processors.outcomes import intent_rows
from levelog_store.rows import IntentRow, Target


def rows_of(
    case: Case,
    identity: Sequence[str],
    targets: Mapping[str, Target],
    last_applied: Mapping[str, bytes],
    is_watched: Callable[[ObjectKey], bool],
    *,
    redactor: Redactor,
) -> list[IntentRow]:
    """Rows of what a case asks for; where that cannot be sent there are none, and the reason is the case's error.

    `identity` is (cluster, application).
    """
    try:
        return intent_rows(
            identity,
            case.view,
            case.parent,
            case.before.round + 1,
            case.wanted,
            targets,
            last_applied,
            is_watched,
            redactor=redactor,
        )
    except (ConfigurationError, TypeError, ValueError, msgspec.MsgspecError) as error:
        name = case.view.reconcile.name if case.view.reconcile else case.view.handler.name
        case.error = fault_reason("reconcile function", name, error)
        return []
