"""`levelog dev`: an operator, a cluster for it and its levels in one terminal, while you write it."""

from pathlib import Path
from typing import Annotated

from levelog_cli.commands.declaring import PORTS, option, switch, taking
from levelog_cli.commands.run import Files
from levelog_cli.servers.data_dir import DEV_DIR
from levelog_cli.settings import Settings

_Objects = Annotated[
    list[Path] | None,
    option("A YAML file whose objects are applied at the start and when you save it; may be repeated.", "FILE"),
]


@taking("application", "namespace", "redact", "redaction", "threads", "max_backoff", "listen")
def dev(
    settings: Settings,
    files: Files,
    *,
    create: _Objects = None,
    folder: Annotated[Path, option("Where cluster, log and tables are kept.", "FOLDER")] = DEV_DIR,
    port: Annotated[int, option("Port of the cluster; default: a free one.", "PORT", show_default=False, **PORTS)] = 0,
    ui: Annotated[bool, switch("Serve pages that show what happens: see `levelog ui`.", "--ui")] = False,
) -> None:
    """Run operators on a cluster in memory, restart when a file changes, and show their levels.

    The cluster has the CRDs of their classes. Its kubeconfig is FOLDER/kubeconfig.
    """
    from levelog_cli.editing.loop import develop

    develop(settings, files, objects=create or [], folder=folder, port=port, has_pages=ui)
