"""Bundles as tests: operators decide as was recorded."""

from collections.abc import Sequence
from pathlib import Path

from levelog.operator import Operator
from levelog_processors.program import Program
from levelog_replay.golden import check
from levelog_testing.loopthread import LoopThread


def differs(bundle: Path, operators: Sequence[Operator], *, application: str, is_updated: bool) -> str:
    """What comes out otherwise than a bundle says, which is rewritten if wanted; nothing if all is as it says.

    Raises ConfigurationError for bundles that are damaged, or of other operators.
    """
    program = Program(operators)
    name = application or program.operators[0].name
    loop = LoopThread("recordings")
    try:
        return loop.call(check(bundle, program, application=name, is_updated=is_updated))
    finally:
        loop.end()
