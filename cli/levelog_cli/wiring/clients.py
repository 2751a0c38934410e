"""Client libraries that Kopf files have imported: configured for levelog's own cluster, as Kopf's login does."""

import inspect
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from levelog_cli.settings import Settings
from levelog_kube.configuration import kubeconfig_files

LIBRARIES: Final = ("kubernetes", "kubernetes_asyncio")
"""Those that Kopf configures for all of a process; one makes its own objects of pykube's configuration."""
log = logging.getLogger(__name__)


async def configure_clients(settings: Settings) -> None:
    """Have the libraries find the API that levelog finds. A warning names what could not be configured."""
    for name in [each for each in LIBRARIES if each in sys.modules]:
        config = import_module(f"{name}.config")
        try:
            files = kubeconfig_files(Path(settings.kubeconfig) if settings.kubeconfig else None)
            paths, context = os.pathsep.join(map(str, files)), settings.context or None
            loading = config.load_kube_config(paths, context) if files else config.load_incluster_config()
            if inspect.isawaitable(loading):
                await loading
        except Exception as error:  # noqa: BLE001 - as in `levelog_kube.configuration`
            log.warning(
                "%s is not configured: %s: %s; if functions of a Kopf file use it in this process, call "
                "%s.config.load_kube_config() or load_incluster_config() in a start-up handler",
                *(name, type(error).__name__, error, name),
            )
