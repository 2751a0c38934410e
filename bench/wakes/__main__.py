"""`python -m bench.wakes [NAME …]`: run unmodified operators, keep the audit logs of their API servers."""

import argparse
import asyncio
import importlib
import pkgutil

from bench.wakes import scenes
from bench.wakes.lab import Lab


async def _run(name: str, idle_seconds: float) -> None:
    scene = importlib.import_module(f"bench.wakes.scenes.{name}")
    async with Lab(scene.NAME, scene.INTERESTING, left_out=scene.LEFT_OUT, idle_seconds=idle_seconds) as lab:
        await scene.run(lab)


def main() -> None:
    """Run the scenes that are named, all at once; without a name all of them."""
    known = [module.name for module in pkgutil.iter_modules(scenes.__path__)]
    parser = argparse.ArgumentParser(prog="python -m bench.wakes", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], metavar="NAME", help=", ".join(known))
    parser.add_argument("--idle-seconds", type=float, default=600)
    options = parser.parse_args()

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            for name in options.names or known:
                group.create_task(_run(name, options.idle_seconds))

    asyncio.run(together())


if __name__ == "__main__":
    main()
