"""Bundles as tests: operators must decide as recorded."""

import os
from collections.abc import Sequence
from pathlib import Path

from levelog.operator import Operator
from levelog_base.secrets.redaction import Redactor
from levelog_processors.program import Program
from levelog_replay.bundles.golden import check
from levelog_testing.loopthread import LoopThread


def differs(bundle: Path, operators: Sequence[Operator], *, application: str, is_updated: bool) -> str:
    """The differences from a bundle, which is rewritten if wanted; empty if there are none.

    Raises ConfigurationError for bundles that are damaged, or of other operators, and as `redactor` does.
    """
    program = Program(operators)
    name = application or program.operators[0].name
    loop = LoopThread("recordings")
    try:
        return loop.call(check(bundle, program, application=name, is_updated=is_updated, redactor=redactor()))
    finally:
        loop.end()


def redactor() -> Redactor:
    """The redactor of the log, by the variables that the processes of an application take too.

    Without a key, manifests with secret values cannot be compared. Raises ConfigurationError for a key or a rule that
    cannot be read.
    """
    if os.environ.get("LEVELOG_REDACTION") == "off":
        return Redactor(is_off=True)
    file = os.environ.get("LEVELOG_REDACTION_KEY_FILE") or None
    return Redactor.from_file(file, os.environ.get("LEVELOG_REDACT", "").split())
