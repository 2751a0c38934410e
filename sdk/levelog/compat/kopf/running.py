"""`kopf.operator` and `kopf.run`: the handlers of the program that calls them, in its process."""

import asyncio
import inspect
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from levelog.compat.kopf.modules import operator_in
from levelog.operator import Operator
from levelog_base.errors import OperatorError

_MEANINGLESS: Final = ("clusterwide", "standalone", "priority", "peering_name", "identity", "lifecycle")
"""Options of Kopf that say what is so anyway, or of what levelog has its own."""
_REFUSED: Final = ("registry", "settings", "memo", "indexers", "insights", "vault", "ready_flag", "loop")


def operator(
    *,
    namespaces: Sequence[str] = (),
    namespace: str | None = None,
    liveness_endpoint: str | None = None,
    stop_flag: asyncio.Event | None = None,
    **options: Any,
) -> Coroutine[Any, Any, None]:
    """Run the handlers of the calling module and of what it imports, until cancelled or until the flag is set.

    Other options are settings of `levelog run`: `data_dir="/var/lib/teams"`. Raises OperatorError for those of Kopf
    that mean nothing here.
    """
    from levelog.embedding import run  # noqa: PLC0415 - loads all of levelog

    running = run(_calling(), **_settings("kopf.operator", namespaces, namespace, liveness_endpoint, options))
    return running if stop_flag is None else _until(stop_flag, running)


def run(
    *,
    namespaces: Sequence[str] = (),
    namespace: str | None = None,
    liveness_endpoint: str | None = None,
    **options: Any,
) -> None:
    """Run the handlers of the calling module and of what it imports, as `levelog run` does; a signal ends it."""
    from levelog.embedding import run_to_end  # noqa: PLC0415 - loads all of levelog

    run_to_end(_calling(), **_settings("kopf.run", namespaces, namespace, liveness_endpoint, options))


def _calling() -> Operator:
    """The operator of the module that called the caller."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return operator_in(sys.modules[frame.f_globals["__name__"] if frame is not None else "__main__"])


def _settings(
    where: str, namespaces: Sequence[str], namespace: str | None, liveness: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    if refused := [name for name in options if name in _REFUSED]:
        raise OperatorError(f"{where}: {refused[0]}= means nothing to levelog: docs/embedding.md has what it takes")
    named = [*namespaces, *([namespace] if namespace else ())]
    return {
        **{name: value for name, value in options.items() if name not in _MEANINGLESS},
        **({"namespace": [str(each) for each in named]} if named else {}),
        **({"listen": urlsplit(liveness).netloc} if liveness else {}),
    }


async def _until(flag: asyncio.Event, running: Coroutine[Any, Any, None]) -> None:
    """Run until the flag is set, or what runs has ended."""
    tasks = [asyncio.create_task(flag.wait()), work := asyncio.create_task(running)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await work
