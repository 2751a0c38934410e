"""Which handlers, timers and effects a replay calls again: looks up the names in `--call` and `--break`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from levelog.effects import EffectHandler
from levelog_base.errors import ConfigurationError
from levelog_history.selection import named
from levelog_processors.program import Program

_CALLED: Final = ("handler", "timer", "effect")
"""Kinds of functions that are called and end; besides them there are daemons, and notes that call nothing."""


def kind_of(effect: EffectHandler) -> str:
    """The registration of an effect's function: as handler, timer, effect, daemon, or none: note."""
    return effect.title.partition(" ")[0]


def functions_of(programs: Iterable[Program]) -> dict[str, EffectHandler]:
    """Handlers, timers, effects and daemons, by the names of their functions: `operator/function`."""
    return {
        f"{name.partition('/')[0]}/{effect.title.partition(' ')[2]}": effect
        for program in programs
        for name, effect in program.effects.items()
        if kind_of(effect) in (*_CALLED, "daemon")
    }


def callable_names(programs: Iterable[Program]) -> set[str]:
    """Names of the effects that can be called again."""
    return {name for name, effect in functions_of(programs).items() if kind_of(effect) in _CALLED}


def find_calls(texts: Sequence[str], programs: Sequence[Program], *, option: str = "--call") -> dict[str, str]:
    """The functions that texts name, `operator/function`, by the names of their effects, `operator/effect`.

    Raises ConfigurationError for what there is nothing of, and for what cannot be called again.
    """
    functions = functions_of(programs)
    names = callable_names(programs)
    chosen: set[str] = set()
    for text in texts:
        found = named(text, functions)
        if not found:
            there = f"there are {', '.join(sorted(names))}" if names else "the code has none"
            raise ConfigurationError(f"{option} {text}: no handler, timer or effect is named so: {there}")
        for name in sorted(found):
            _refuse_unrepeatable(f"{option} {text}", functions[name])
        chosen |= found
    return {f"{name.partition('/')[0]}/{functions[name].name}": name for name in sorted(chosen)}


def find_broken_calls(texts: Sequence[str], programs: Sequence[Program]) -> dict[str, str]:
    """The same of those that texts of `--break` name, which may name other things too. Raises ConfigurationError."""
    functions = functions_of(programs)
    names = [text for text in texts if not text.isdecimal() and text.count("/") < 2 and named(text, functions)]
    return find_calls(names, programs, option="--break")


def is_called(effect: EffectHandler, request: object) -> bool:
    """Tell whether an effect calls its function for a request, decoded JSON, and does not only note it."""
    match request:
        case Mapping() if kind_of(effect) == "handler":
            return not request.get("is_noted", False)  # pyright: ignore[reportUnknownMemberType]
        case Mapping() if kind_of(effect) == "timer":
            return "due" in request
        case _:
            return True


def _refuse_unrepeatable(what: str, effect: EffectHandler) -> None:
    if kind_of(effect) == "daemon":
        raise ConfigurationError(
            f"{what}: that is a daemon, whose run lasts as long as its object does; what can be called again is called "
            "and returns"
        )
    if effect.snapshots:
        raise ConfigurationError(
            f"{what}: it looks up {', '.join(sorted(effect.snapshots))} when it is called, and history does not tell "
            "what it found there"
        )
