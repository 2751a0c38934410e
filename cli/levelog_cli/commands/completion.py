"""`levelog completion`: what a shell needs to complete commands and options."""

import os
from enum import StrEnum
from typing import Annotated, Final

import typer

VARIABLE: Final = "_LEVELOG_COMPLETE"
"""Set by the scripts where a shell asks how a line goes on."""


class Shell(StrEnum):
    """Shells that can be completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")]
) -> None:
    """Print a script that completes commands and options.

    For this shell only: source <(levelog completion bash)
    """
    from typer.completion import get_completion_inspect_parameters, shell_complete

    get_completion_inspect_parameters()
    raise typer.Exit(shell_complete(context.find_root().command, {}, "levelog", VARIABLE, f"source_{shell}"))


def prepare() -> None:
    """Let typer answer a shell that asks; typer does so by itself only where it adds options to install scripts."""
    if os.environ.get(VARIABLE):
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()
