"""The cluster of `levelog dev`: a Kubernetes API in memory, whose objects a file keeps from one start to the next."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from levelog_cli.servers.data_dir import DataDir
from levelog_sandbox import Sandbox
from levelog_sandbox.objects.journal import Journal

_JOURNAL: Final = "objects"


async def serve_cluster(folder: Path, kubeconfig: Path, port: int, telling: Connection) -> None:
    """Serve until cancelled, and tell the URL once the kubeconfig is written.

    Raises ConfigurationError if another process uses the folder; OSError if the port is taken.
    """
    data = DataDir(folder)
    with data.claim(instead="stop that one, or give this one another --folder"):
        sandbox = Sandbox(port=port, pods_run=True)
        with Journal(data.path / _JOURNAL, sandbox.store):
            async with sandbox:
                sandbox.kubeconfig(kubeconfig)
                telling.send(sandbox.url)
                await asyncio.get_running_loop().create_future()
