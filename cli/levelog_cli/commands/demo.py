"""`levelog demo`: everything embedded, an example operator and a story; what happened and why."""

import tempfile
from pathlib import Path
from typing import Annotated

from levelog_base.errors import ConfigurationError
from levelog_cli.commands.declaring import switch
from levelog_cli.running import execute
from levelog_cli.settings import LogLevel, Settings


def demo(
    *,
    as_json: Annotated[bool, switch("End with a summary as one line of JSON.", "--json")] = False,
    ui: Annotated[bool, switch("Stay up, and serve pages that show what happened: see `levelog ui`.", "--ui")] = False,
    debug: Annotated[bool, switch("Show the log, and the traceback if the command fails.", "--debug")] = False,
) -> None:
    """Run an example operator on a cluster in this process; show what woke, what drifted and what was written."""

    async def work() -> None:
        from levelog_cli.demo.playing import play

        try:
            folder = tempfile.TemporaryDirectory(prefix="levelog-demo-")
        except OSError as error:
            raise ConfigurationError(
                f"the demo keeps its data in a temporary folder, and cannot make one: {error}; set TMPDIR"
            ) from error
        with folder as name:
            data, kubeconfig = Path(name) / "data", str(Path(name) / "kubeconfig")
            settings = Settings(log_level=level, debug=debug, data_dir=data, kubeconfig=kubeconfig)
            await play(settings, as_json=as_json, ui=ui)

    level = LogLevel.INFO if debug else LogLevel.ERROR
    execute(Settings(log_level=level, debug=debug), work)
