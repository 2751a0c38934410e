"""The operator of the edges' machine: handlers of each kind, and what each compares, said in a second way."""

from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from levelog import Operator
from rigs.machine.operator import Web

LONG: Final = timedelta(hours=1)
"""However long a step takes."""


class Called(Protocol):
    """Told of each call; returns, or raises, when the machine says so."""

    def __call__(self, handler: str, reason: str, web: Web, old: Any, /) -> Awaitable[None]: ...


class Compared(Struct, frozen=True, kw_only=True):
    """What a handler is called for."""

    reasons: tuple[str, ...]
    field: str = ""
    """Of the spec; empty: all of it."""
    label: str = ""
    """Value of `app` that the object has to have."""

    def state(self, spec: Mapping[str, Any]) -> Any:
        """What counts of a spec as the class has it."""
        return spec[self.field] if self.field else dict(spec)

    def fits(self, body: Mapping[str, Any]) -> bool:
        """Tell whether an object is the handler's business."""
        return not self.label or (body["metadata"].get("labels") or {}).get("app") == self.label


COMPARED: Final = {
    "provision": Compared(reasons=("create", "update", "delete")),
    "compare": Compared(reasons=("update",)),
    "pull": Compared(reasons=("create", "update"), field="config"),
    "mail": Compared(reasons=("create", "update", "delete"), label="web"),
}


def spec_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of an object as the class has it, with what is left out."""
    spec: dict[str, Any] = msgspec.to_builtins(msgspec.convert(body, Web).spec)
    return spec


def make_handlers(called: Called) -> Operator:
    """The operator."""
    op = Operator("machine")

    @op.on.create(timeout=LONG)
    @op.on.update
    @op.on.delete
    async def provision(web: Web, old: Web | None, reason: str) -> None:
        await called("provision", reason, web, old and msgspec.to_builtins(old.spec))

    @op.on.update(timeout=LONG)
    async def compare(web: Web, old: Web | None, reason: str) -> None:
        await called("compare", reason, web, old and msgspec.to_builtins(old.spec))

    @op.on.field("spec.config", timeout=LONG)
    async def pull(web: Web, old: str | None, reason: str) -> None:
        await called("pull", reason, web, old)

    @op.on.create(labels={"app": "web"}, timeout=LONG)
    @op.on.update
    @op.on.delete
    async def mail(web: Web, old: Web | None, reason: str) -> None:
        await called("mail", reason, web, old and msgspec.to_builtins(old.spec))

    return op
