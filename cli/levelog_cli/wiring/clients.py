"""Client libraries for Kubernetes that operator files import: configured for levelog's own cluster."""

import inspect
import logging
import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from levelog.operator import Operator
from levelog_cli.settings import Settings
from levelog_kube.configuration import kubeconfig_files

LIBRARIES: Final = ("kubernetes", "kubernetes_asyncio")
"""Libraries with a configuration for all of a process."""
_IMPORT: Final = re.compile(rf"^\s*(?:import|from)\s.*?\b({'|'.join(LIBRARIES)})\b", re.MULTILINE)
log = logging.getLogger(__name__)


async def configure_clients(settings: Settings) -> None:
    """Have the libraries find the API that levelog finds. A warning names what could not be configured."""
    named = _imported()
    for name in [each for each in LIBRARIES if each in sys.modules or (each in named and find_spec(each))]:
        config = import_module(f"{name}.config")
        try:
            files = kubeconfig_files(Path(settings.kubeconfig) if settings.kubeconfig else None)
            paths, context = os.pathsep.join(map(str, files)), settings.context or None
            loading = config.load_kube_config(paths, context) if files else config.load_incluster_config()
            if inspect.isawaitable(loading):
                await loading
        except Exception as error:  # noqa: BLE001 - as in `levelog_kube.configuration`
            log.warning(
                "%s is not configured: %s: %s; if functions use it in this process, call "
                "%s.config.load_kube_config() or load_incluster_config() in a start-up handler",
                *(name, type(error).__name__, error, name),
            )


def _imported() -> set[str]:
    """Libraries that files of operators, and loaded modules of their folders, import: also while a function runs."""
    modules = [(each, Path(file)) for each in list(sys.modules.values()) if (file := getattr(each, "__file__", None))]
    folders = {
        file.parent
        for module, file in modules
        if any(issubclass(type(each), Operator) for each in vars(module).values())
    }
    found: set[str] = set()
    for _, file in modules:
        is_own = file.suffix == ".py" and "site-packages" not in file.parts
        if is_own and any(file.is_relative_to(folder) for folder in folders):
            with suppress(OSError):
                found |= set(_IMPORT.findall(file.read_text(errors="replace")))
    return found
