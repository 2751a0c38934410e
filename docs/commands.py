"""Makes docs/commands.md out of the help of the command line: `make reference`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from levelog_cli.commands.declaring import MOMENT
from levelog_cli.main import app

HEAD: Final = """# Commands

Every command and option, out of `levelog COMMAND --help`: do not edit, run `make reference`.

- A moment is a sequence, a time, or how long ago (15m).
- The last line of each command names the [settings](configuration.md#settings) that it takes. `--nats-…` and
  `--redact…` stand for all that begin so. All commands but `demo` also take `--log-format`, `--log-level`
  and `--debug`.
"""
EVERYWHERE: Final = {"--log-format", "--log-level", "--debug"}
BEGINNINGS: Final = ("--nats-", "--redact")


def page() -> str:
    """The whole page."""
    group = cast("TyperGroup", typer.main.get_command(app))
    return HEAD + "".join(
        line for name, command in group.commands.items() for line in _command(name, command.params, command.help or "")
    )


def _command(name: str, params: Sequence[object], text: str) -> Iterator[str]:
    arguments = [param for param in params if isinstance(param, TyperArgument)]
    options = [param for param in params if isinstance(param, TyperOption) and "--help" not in param.opts]
    shown = "".join(f" {_named(param)}{'...' if param.nargs == -1 else ''}" for param in arguments)
    yield f"\n## levelog {name}\n\n`levelog {name}{shown}`\n\n{text}\n"
    rows = [(f"`{_named(param)}`", param.help) for param in arguments]
    own = [param for param in options if not param.envvar]
    rows += [(", ".join(f"`{opt}`" for opt in param.opts), param.help) for param in own]
    if rows:
        yield "\n" + "".join(f"- {what}: {' '.join((text or '').replace(MOMENT, '').split())}\n" for what, text in rows)
    settings = [param.opts[0] for param in options if param.envvar and param.opts[0] not in EVERYWHERE]
    if settings:
        yield f"\nSettings: {', '.join(dict.fromkeys(f'`{_shortened(name)}`' for name in settings))}.\n"


def _shortened(name: str) -> str:
    return next((f"{beginning}…" for beginning in BEGINNINGS if name.startswith(beginning)), name)


def _named(argument: TyperArgument) -> str:
    return argument.metavar or str(argument.name).upper()


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
