"""Names as people read them: `handler provision` for a call of the effect `provision_handled`; words for indices."""

import re
from typing import Final

from levelog.effects import GROUP
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import CallNoted, ReceiptNoted

HANDLED: Final = "_handled"
"""Ends the name of the effect that calls an edge handler."""
TIMED: Final = "_calls"
RUN: Final = "_runs"
NOTED: Final = "_written"
"""Suffix of effects that note that something is written."""
CHANGED: Final = "changed"
"""Name of the call that notes what an object is, from whose time a timer with `idle` counts."""
DAEMON: Final = "daemon"
NOT_CALLED: Final = "noted, the function is not called"
"""What became of a call that only notes what a handler or timer knows of an object."""
_KINDS: Final = {HANDLED: "handler", TIMED: "timer", RUN: DAEMON, NOTED: "note"}


def kind_and_name(view: str, effect: str) -> tuple[str, str]:
    """`handler` and `provision`, of the effect `provision_handled` that `shops/provision` calls."""
    own = view.partition("/")[2]
    for ending, kind in _KINDS.items():
        name = effect.removesuffix(ending)
        if name != effect and (own == name or own.startswith(f"{name}_")):
            return kind, name
    return "effect", effect


def title_of(view: str, target: str) -> str:
    """`handler provision`, of the target of a call."""
    return " ".join(kind_and_name(view, target.partition("/")[0].removesuffix(f".{GROUP}")))


def call_target(operator: str, effect: str, namespace: str, parent: str) -> ObjectKey:
    """The target of calls of an effect for a parent, `page.effects/default/shop:webs`; a call's own name may follow.

    The operator is in it: a call that fails or lasts must not hold up what another operator calls alike.
    """
    return ObjectKey(group=GROUP, resource=effect, namespace=namespace, name=f"{parent}:{operator}")


def shown_write(view: str, verb: str, target: str) -> str:
    """`apply pods/default/shop-0`, or `call handler provision for default/shop`."""
    if verb != "call":
        return f"{verb} {target}"
    of = target.partition("/")[2].replace(f":{view.partition('/')[0]}", "", 1)  # whose operator needs no name here
    return f"call {title_of(view, target)} for {of}"


def shown_patches(receipt: ReceiptNoted | None) -> str:
    """`, its patch_status written`, of the receipt of a call."""
    return "".join(f", its {each.verb} {each.outcome}" for each in receipt.patches) if receipt is not None else ""


def only_notes(view: str, target: str, made: CallNoted | None) -> bool:
    """Tell whether a call that was made notes what its handler or timer knows of an object, without calling it."""
    kind = title_of(view, target).partition(" ")[0]
    if made is None or kind not in ("handler", "timer"):
        return False
    if kind == "timer":
        return made.name == CHANGED
    return isinstance(made.request, dict) and made.request.get("is_noted") is True  # pyright: ignore[reportUnknownMemberType]


def is_daemon(view: str, verb: str, target: str) -> bool:
    """Tell whether a write is the run of a daemon."""
    return verb == "call" and title_of(view, target).startswith(f"{DAEMON} ")


_OF: Final = r"(?:[\w.-]+/)?@"
_WORDS: Final = (
    (re.compile(r"([a-z0-9][-a-z0-9.]*?)\.?:deleted/([^/\s]+/[^\s:,;()]+):[\w.-]*\w"), r"\1/\2 (deleted)"),
    (re.compile(rf"{_OF}applied/(\w+)"), r"what \1 applied"),
    (re.compile(rf"{_OF}children/([\w.-]+)/([\w.-]*\w)"), r"\2 that \1 control"),
    (re.compile(rf"{_OF}confirmed/([\w.-]*\w)"), r"deletions confirmed on \1"),
    (re.compile(rf"{_OF}finalizing/([\w.-]*\w)"), r"finalizers of \1"),
    (re.compile(rf"{_OF}daemon/(\w+)"), r"objects of daemon \1"),
    (re.compile(r"(?<![\w./@-])[\w.-]+/@([A-Z]\w*)"), r"objects \1"),
)
"""Names of indices that levelog keeps, and of the end of an incarnation, and what people read instead."""


def in_words(text: str) -> str:
    """A text that people read, without the names that levelog gives to what no user named."""
    if "@" not in text and ":deleted/" not in text:
        return text
    for name, words in _WORDS:
        text = name.sub(words, text)
    return text
