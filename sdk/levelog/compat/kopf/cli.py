"""Kopf's command line, for programs that call it: the commands are levelog's."""

from collections.abc import Sequence
from typing import Any


def main(args: Sequence[str] | None = None, **options: Any) -> Any:
    """Run a command, `main(["run", __file__])`; without arguments that of the process. It ends the process."""
    from levelog_cli.main import app  # noqa: PLC0415 - loads the command line

    return app(None if args is None else [*args], **options)
