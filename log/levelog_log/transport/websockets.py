"""Loads nats-py without aiohttp until a WebSocket needs it: otherwise commands start a fifth slower."""

import sys
from importlib import import_module
from typing import Any, Final

_LIBRARY: Final = "aiohttp"


class _Later:
    """Replaces aiohttp in nats-py, and loads it at its first use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(_LIBRARY), name)


def load_nats() -> None:
    """Load nats-py, but not aiohttp."""
    modules: dict[str, Any] = sys.modules
    if _LIBRARY in modules or "nats" in modules:
        return
    modules[_LIBRARY] = None  # what makes an import of it fail, as where it is not installed
    try:
        transport = import_module("nats.aio.transport")
    finally:
        del modules[_LIBRARY]
    vars(transport)[_LIBRARY] = _Later()
