"""The entry point of the console script, before any slow import."""

import signal


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback also while it loads."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from levelog_cli.main import main as run  # noqa: PLC0415 - typer takes a while

    run()
