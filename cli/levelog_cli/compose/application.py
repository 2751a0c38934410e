"""What is run: the operators of some files, under one name."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from levelog.wire.objects import Application
from levelog_cli.loading import load_operators
from levelog_cli.settings import Settings
from levelog_processors.program import Program


class LoadedApplication(Struct, frozen=True):
    """A program and the name under which its state is kept."""

    name: Application
    program: Program


def load_application(settings: Settings, files: Sequence[Path]) -> LoadedApplication:
    """Load the operators; their application is named as the settings say, else as the first of them.

    Raises ConfigurationError and OperatorError as `load_operators` does, and for operators that do not fit together.
    """
    program = Program(load_operators(files))
    return LoadedApplication(Application(settings.application or program.operators[0].name), program)
