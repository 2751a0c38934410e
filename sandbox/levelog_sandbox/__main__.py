"""Run a sandbox as a server: `python -m levelog_sandbox --port 8001 --kubeconfig PATH`."""

import argparse
import asyncio
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from levelog.errors import ConfigurationError
from levelog_sandbox.files import create_from_files
from levelog_sandbox.objects.journal import Journal
from levelog_sandbox.sandbox import Sandbox


async def serve(given: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM; the kubeconfig is written once the objects of the files are there."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sandbox = Sandbox(host=given.host, port=given.port, pods_run=given.pods_run)
    with Journal(given.journal, sandbox.store) if given.journal is not None else nullcontext():
        async with sandbox:
            await create_from_files(sandbox, given.create)
            if given.kubeconfig is not None:
                sandbox.kubeconfig(given.kubeconfig)
            sys.stdout.write(f"{sandbox.url}\n")
            sys.stdout.flush()
            await stop.wait()


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m levelog_sandbox", description=__doc__)
    made.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen; a name that others resolve, if they are to use the kubeconfig",
    )
    made.add_argument("--port", type=int, default=8001, help="0 takes a free one; the address is printed")
    made.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for the sandbox here")
    made.add_argument("--pods-run", action="store_true", help="pods are Running as soon as they are created")
    made.add_argument(
        "--create",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="create the objects of a YAML file that are not there yet; may be given several times",
    )
    made.add_argument(
        "--journal", type=Path, metavar="FILE", help="keep the objects in this file, and start with those that it holds"
    )
    return made


def main() -> None:
    """Read the arguments and serve."""
    given = parser().parse_args()
    try:
        asyncio.run(serve(given))
    except (ConfigurationError, OSError) as error:  # OSError: the address is taken, the kubeconfig not writable
        sys.exit(f"levelog_sandbox: {error}")


if __name__ == "__main__":
    main()
