"""Operators in a program of your own: `await run(op)`. See docs/embedding.md.

Needs what `levelog run` needs; `import levelog` alone does not load it.
"""

from levelog_cli.wiring.hosted import run, run_to_end

__all__ = ["run", "run_to_end"]
