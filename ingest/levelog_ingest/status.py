"""How the watch of a resource goes, as probes and people are told, and how long ingest waits after a failure."""

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from levelog.absence import doubled
from levelog.resources import Scope
from levelog_base.counting import counted
from levelog_base.wire.objects import GroupResource, Version

log = logging.getLogger(__name__)

Phase: TypeAlias = Literal["starting", "absent", "forbidden", "listing", "watching", "retrying"]
FIRST: Final = timedelta(seconds=0.5)
LONGEST: Final = timedelta(seconds=30)  # as client-go's reflector
DIFFERENCE: Final = timedelta(minutes=1)
"""How far the clocks of two processes may differ when one goes on with the lists of the other."""


class WatchedResource(Struct, frozen=True, kw_only=True):
    """A resource in one API version, in some namespaces or in all (none are named)."""

    resource: GroupResource
    version: str
    namespaces: tuple[str, ...] = ()
    kind: str = ""
    """The kind in its class, like the scope; empty: it has no class."""
    scope: Scope | None = None

    def __str__(self) -> str:
        if not self.namespaces:
            return str(self.resource)
        return f"{self.resource} in namespace{'s' * (len(self.namespaces) > 1)} {', '.join(self.namespaces)}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts with a watch each: every given namespace, or the empty one, which stands for all."""
        return self.namespaces or ("",)

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.resource.group}/{self.version}" if self.resource.group else self.version


class ResourceStatus(Struct, kw_only=True):
    """How the watch of a resource, or its source, goes, as of now."""

    watched: WatchedResource
    phase: Phase = "starting"
    detail: str = ""
    """One sentence on what is wrong; empty if nothing is."""
    version: Version | None = None
    """Seen and handed to the log up to here, in all parts; None before the first list is complete."""
    objects: int = 0
    """Objects of the list that is being read, or that was read last."""
    total: int | None = None
    """How many the list will have, where the server says."""
    last_contact: datetime | None = None
    silence: timedelta | None = None
    """The longest time without contact that is no trouble; None: it may take for ever."""
    skipped: int = 0
    """Objects that could not be recorded; each is in the process's log."""
    on_change: "Progress | None" = None

    def changed(self) -> None:
        """Call `on_change`."""
        if self.on_change is not None:
            self.on_change(self)

    def trouble(self, now: datetime) -> str:
        """Why what happens to the resource is not recorded now; empty: it is."""
        if self.detail:
            return f"{self.watched}: {self.detail}"
        if self.version is None:
            return f"{self.watched}: not listed yet, {counted(self.objects, 'object')} so far"
        silent = now - self.last_contact if self.last_contact is not None else timedelta(0)
        if self.silence is not None and silent > self.silence:
            return f"{self.watched}: nothing heard for {silent.total_seconds():.0f} s"
        return ""


Progress: TypeAlias = Callable[[ResourceStatus], None]
"""Called when a status has changed; must not block."""


class Backoff:
    """Doubles with each failure in a row, with jitter, so that many clients do not come back at once."""

    def __init__(self, first: timedelta = FIRST, longest: timedelta = LONGEST) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    def succeeded(self) -> None:
        """Begin at the shortest wait again."""
        self._failures = 0

    def failed(self, at_least: timedelta | None = None) -> timedelta:
        """How long to wait now; never less than the server asked for."""
        self._failures += 1
        jitter = random.uniform(0.5, 1.0)  # noqa: S311  # it spreads load and hides nothing
        wait = doubled(self._first, self._failures, self._longest) * jitter
        return wait if at_least is None else max(wait, at_least)


class Troubles:
    """The problem with a resource: logged once until it changes."""

    def __init__(self, status: ResourceStatus) -> None:
        self.told = ""
        self._status = status

    def tell(self, phase: Phase, detail: str, level: int = logging.WARNING) -> None:
        """Note a problem, and log it once until it changes; debug messages may repeat."""
        if self.note(phase, detail):
            log.log(level, "%s", detail, extra={"resource": str(self._status.watched)})
        if level <= logging.DEBUG:
            self.told = ""

    def note(self, phase: Phase, detail: str) -> bool:
        """Note a problem; tells whether it is another one than before."""
        is_new, self.told = detail != self.told, detail
        self._status.phase, self._status.detail = phase, detail
        self._status.changed()
        return is_new

    def over(self) -> None:
        """All is well."""
        self.told = ""
