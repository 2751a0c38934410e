"""How a command is declared: arguments and options on a line each, the settings that it takes, and how it ends."""

import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError
from levelog_cli.running import FAILED, execute
from levelog_cli.servers.data_dir import DEV_DIR, DataDir
from levelog_cli.settings import DEFAULTS, LOGS, OPTIONS, TYPES, LogLevel, Settings

Work = Coroutine[Any, Any, bool | None]
"""What a command does in an event loop; one that comes to False ends with status 1."""


MOMENT: Final = ": a sequence, a time, or how long ago (15m)"
"""What a moment is, in help."""
NAMES: Final = "or how the name ends: webs.example.com/default/shop, default/shop, shop. _ stands for no namespace."
"""The names that stand for an object, in help."""
PORTS: Final = {"min": 0, "max": 65_535}
"""Bounds of an option; 0 is a free port."""


def argument(text: str, metavar: str) -> Any:
    """An argument, required if its parameter has no default."""
    return typer.Argument(help=text, metavar=metavar, show_default=False)


def option(text: str, metavar: str | None, *flags: str, **more: Any) -> Any:
    """An option with a value; without flags it is named after its parameter, and a default is shown if it says some."""
    return typer.Option(*flags, help=text, metavar=metavar, **more)


def moment(text: str, *flags: str) -> Any:
    """An option with a moment of recorded history."""
    return option(f"{text}{MOMENT}.", "MOMENT", *flags)


def switch(text: str, *flags: str) -> Any:
    """An option without a value."""
    return typer.Option(*flags, help=text)


Json = Annotated[bool, switch("Print JSON.", "--json")]
JsonLines = Annotated[bool, switch("Print lines of JSON.", "--json")]
FromBundle = Annotated[Path | None, option("Read a file from `levelog export` instead of the log.", "FILE", "--bundle")]
Deciders = Annotated[Path, argument("Operators to decide with.", "FILE")]
Operators = Annotated[list[Path], argument("Operators, as `levelog run` takes them.", "FILE")]
Start = Annotated[str, moment("Begin at a moment, with the state of that time", "--from")]
End = Annotated[str, option("End there.", "MOMENT", "--to")]
Chosen = Annotated[
    list[str] | None,
    option(
        "Only decisions on this object, or on all of a namespace or resource: RESOURCE[.GROUP]/NAMESPACE/NAME; may be "
        "repeated.",
        "OBJECT",
        "--object",
    ),
]
Labels = Annotated[
    str, option("Only what concerns objects with these labels: app=web,tier!=db", "LABELS", "--selector", "-l")
]
View = Annotated[str, option("One view: webs/pods, or pods.", "VIEW")]


def taking(*names: str, looks_back: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function whose first parameter is Settings into a command with options for these and for the logs.

    One that `looks_back` reads what others have made: what `levelog dev` has, where nobody names a data directory and
    there is nothing else. typer reads options from a signature, so the settings are written into it in place of the
    first parameter.
    """
    taken = (*names, *LOGS)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**values: Any) -> None:
            given = {name: values.pop(name) for name in taken}
            if looks_back and given["data_dir"] is None:
                del given["data_dir"]
                command(_of_dev(Settings(**given)), **values)
            else:
                command(Settings(**given), **values)

        _, *own = inspect.signature(command).parameters.values()
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + [
            _parameter(n, is_asked=looks_back and n == "data_dir") for n in taken
        ]
        shown: Any = called
        shown.__name__ = command.__name__
        shown.__doc__ = command.__doc__
        shown.__module__ = command.__module__
        shown.__signature__ = inspect.Signature(parameters)
        shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


def answering(
    *names: str, looks_back: bool = False, is_quiet: bool = False, seen: tuple[str, ...] = ()
) -> Callable[[Callable[..., Work | None]], Callable[..., None]]:
    """Turn a function that does something, or returns what is to do, into a command as `taking` and `execute` do.

    `is_quiet`: the answer says what the log would warn of. `seen`: parameters with which all that functions do in the
    event loop is looked at.
    """

    def decorate(command: Callable[..., Work | None]) -> Callable[..., None]:
        @wraps(command)
        def executed(settings: Settings, **values: Any) -> None:
            if is_quiet and settings.log_level is not LogLevel.DEBUG:
                settings = replace(settings, log_level=LogLevel.ERROR)
            is_seen = any(values[name] for name in seen)
            execute(settings, lambda: _work(command, settings, values), is_seen=is_seen)

        return taking(*names, looks_back=looks_back)(executed)

    return decorate


def _work(
    command: Callable[..., Work | None], settings: Settings, values: dict[str, Any]
) -> Coroutine[Any, Any, None] | None:
    work = command(settings, **values)
    return None if work is None else _ended(work)


async def _ended(work: Work) -> None:
    if await work is False:
        raise SystemExit(FAILED)


def _of_dev(settings: Settings) -> Settings:
    """The settings with the data directory of `levelog dev`, if that is the one that is meant; stderr says so.

    It is where no servers are given and it is used now, or nothing else is there.
    """
    own, dev = DataDir(settings.data_dir), DataDir(DEV_DIR)
    try:
        if settings.database_url or settings.nats_url or not dev.has(dev.database):
            return settings
        if own.has(own.database) and (own.is_claimed or not dev.is_claimed):
            return settings
    except ConfigurationError:  # the command says it
        return settings
    sys.stderr.write(f"of `levelog dev`, in {DEV_DIR}; --data-dir names others\n")
    return replace(settings, data_dir=DEV_DIR, kubeconfig=settings.kubeconfig or str(dev.path / "kubeconfig"))


def _parameter(name: str, *, is_asked: bool) -> inspect.Parameter:
    """An option for a setting; with `is_asked` it is None where it is not given."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_asked else DEFAULTS[name],
        annotation=Annotated[TYPES[name] | None if is_asked else TYPES[name], OPTIONS[name]],
    )
