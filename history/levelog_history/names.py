"""Names as people write them: a view without its operator, an object by how its name ends, one with a wrong letter."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

_FEW: Final = 5


def is_named(text: str, name: str) -> bool:
    """Tell whether a text names a function, with its operator or without: `webs/pods`, `pods`."""
    return text in (name, name.partition("/")[2])


def named(text: str, names: Iterable[str]) -> set[str]:
    """The functions that a text names."""
    return {name for name in names if is_named(text, name)}


def ends(text: str, name: str) -> bool:
    """Tell whether an object's name is a text, or ends with it: `default/shop`, `shop`."""
    return text == name or name.endswith(f"/{text}")


def few(names: Collection[str], *, like: str = "") -> str:
    """Some names in a sentence, those first that are most like a wrong one, and how many more there are."""
    some = get_close_matches(like, names, n=_FEW, cutoff=0.0) if like else sorted(names)[:_FEW]
    more = len(names) - len(some)
    return ", ".join(some) + (f" and {more} more" if more else "")


def meant(resource: str, held: Collection[str]) -> str:
    """The resource that somebody may have meant without its group, in the singular or with a wrong letter; or none."""
    plain = [each for each in held if each.partition(".")[0] in (resource, f"{resource}s", f"{resource}es")]
    return next(iter(plain or get_close_matches(resource, held, n=1)), "")
