"""The objects that a command is about: one, a namespace, a resource, or a label selection."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct

from levelog.selectors import ABSENT, PRESENT, Value, holds
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import CLUSTER_SCOPE, GroupResource, ObjectKey
from levelog_base.wire.records import LoggedRecord
from levelog_history.revisions import Revision, Revisions

_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?")
_REQUIREMENT: Final = re.compile(r"(?P<not>!)?(?P<key>[A-Za-z0-9._/-]+)(?:(?P<how>!=|==|=)(?P<value>[A-Za-z0-9._-]*))?")


class Selected(Struct, frozen=True):
    """Objects of one resource, of one namespace of it, or one object; what is empty leaves all in."""

    resource: GroupResource
    namespace: str = ""
    """`_` for objects that have none."""
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Selected":
        """Read `RESOURCE[.GROUP][/NAMESPACE[/NAME]]`. Raises ConfigurationError."""
        resource, *rest = text.split("/")
        if not _RESOURCE.fullmatch(resource) or len(rest) > 2 or not all(rest):
            raise ConfigurationError(
                f"{text!r} names no objects: write RESOURCE[.GROUP]/NAMESPACE/NAME as in webs.example.com/default/shop"
                f", with {CLUSTER_SCOPE} for no namespace; without a name, or without both, all are meant"
            )
        return cls(GroupResource.parse(resource), *rest)

    @property
    def key(self) -> ObjectKey | None:
        """The one object that is meant, if it is one."""
        return ObjectKey.parse(str(self)) if self.name and self.namespace else None

    def has(self, key: ObjectKey) -> bool:
        """Tell whether an object is among them."""
        return (
            key.group_resource == self.resource
            and self.namespace in ("", key.namespace or CLUSTER_SCOPE)
            and self.name in ("", key.name)
        )

    def __str__(self) -> str:
        return "/".join(part for part in (str(self.resource), self.namespace, self.name) if part)


def label_selector(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """A test of an object's labels as kubectl writes it: `app=web,tier!=db,owner,!legacy`.

    Raises ConfigurationError for anything else; sets (`in (…)`) are not known.
    """
    requirements = [_requirement(part.strip(), text) for part in text.split(",") if part.strip()]

    def is_selected(manifest: Mapping[str, Any]) -> bool:
        labels: Mapping[str, str] = manifest.get("metadata", {}).get("labels") or {}
        return all(holds(wanted, labels.get(key)) for key, wanted in requirements)

    return is_selected


def has_any(selected: Sequence[Selected], key: ObjectKey) -> bool:
    """Tell whether an object is among any of them."""
    return any(each.has(key) for each in selected)


def _requirement(part: str, text: str) -> tuple[str, Value]:
    found = _REQUIREMENT.fullmatch(part)
    if found is None or (found["not"] and found["how"]):
        raise ConfigurationError(
            f"selector {text!r} cannot be read at {part!r}: write KEY=VALUE, KEY!=VALUE, KEY or !KEY, commas between"
        )
    key, value, how = found["key"], found["value"], found["how"]
    if how == "!=":
        return key, lambda label: label != value
    return key, value if how else ABSENT if found["not"] else PRESENT


class Shown:
    """Which objects are shown: those that are selected, and have the labels in one revision at least."""

    def __init__(self, selected: Sequence[Selected], selector: str) -> None:
        """Raises ConfigurationError for a selector that cannot be read."""
        self.selected = selected
        self._is_labelled = label_selector(selector)
        self._labelled: set[str] | None = set() if selector else None
        """Names of those with the labels, as far as their revisions were taken; None: labels do not count."""

    async def read_ahead(self, records: AsyncIterator[LoggedRecord]) -> None:
        """Take all revisions of the records beforehand."""
        revisions = Revisions(self.selects)
        async for logged in records:
            for entry in revisions.take(logged):
                if isinstance(entry, Revision):
                    self.takes(entry)

    def selects(self, key: ObjectKey) -> bool:
        """Tell whether an object is selected, whatever its labels are."""
        return has_any(self.selected, key)

    def has(self, name: str) -> bool:
        """Tell whether an object is shown."""
        return self.selects(ObjectKey.parse(name)) if self._labelled is None else name in self._labelled

    def takes(self, revision: Revision) -> bool:
        """Tell whether a revision is shown."""
        if not self._is_labelled({} if revision.happened == "unreadable" else revision.manifest()):
            return False
        if self._labelled is not None:
            self._labelled.add(revision.object)
        return True


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
    plain = [each for each in held if is_meant(resource, each)]
    return next(iter(plain or get_close_matches(resource, held, n=1)), "")


def is_meant(said: str, resource: str) -> bool:
    """Tell whether a word, singular or plural, with or without the group, stands for a resource, as for kubectl."""
    plural, _, group = resource.partition(".")
    word, _, said_group = said.lower().partition(".")
    is_grouped = said_group in ("", group)
    return is_grouped and plural in (word, f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies")
