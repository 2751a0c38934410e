"""`writes=` of a reconcile function: the intents that it may yield, by the class that they write."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

from msgspec import Struct

from levelog.errors import OperatorError
from levelog.external import refuse_external
from levelog.intents import Verb
from levelog.resources import ResourceBase, ResourceType

Writes: TypeAlias = Mapping[type[ResourceBase], Collection[Verb]]
"""What `@op.reconcile` takes: `{Pod: ["apply", "delete"], Web: ["patch_status"]}`."""

VERBS: Final[tuple[Verb, ...]] = tuple(verb for verb in get_args(Verb) if verb != "call")
"""A call writes no object. An event is named by the class of the objects that it is about."""


class Write(Struct, frozen=True):
    """One class and the verbs of the intents for it, sorted."""

    cls: type[ResourceBase]
    verbs: tuple[Verb, ...]

    @property
    def resource(self) -> ResourceType:
        """What is written."""
        return self.cls.resource_type

    def __str__(self) -> str:
        return f"{self.cls.__name__}: {_listed(self.verbs)}"


def inspect_writes(function: str, given: Writes) -> tuple[Write, ...]:
    """Check what was given. Raises OperatorError naming the function and what is wrong."""
    what = f"reconcile function {function}: writes="
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperatorError(f'{what} is {given!r}; it says of each class which intents are yielded: {{Pod: ["apply"]}}')
    return tuple(_write(what, cls, verbs) for cls, verbs in given.items())


def refuse_undeclared(
    function: str, view: str, writes: Sequence[Write], verb: Verb, resource: ResourceType, name: str
) -> None:
    """Raises OperatorError, with the declaration that is missing, unless `writes` allow the verb for the resource."""
    held = [write for write in writes if write.resource.group_resource == resource.group_resource]
    if any(verb in write.verbs for write in held):
        return
    shown = [f"{held[0].cls.__name__ if held else resource.kind}: {_listed([*_verbs(held), verb])}"]
    shown = [str(write) for write in writes if write not in held] + shown
    raise OperatorError(
        f"{verb} of {resource.kind} {name}: writes= of {function} does not name it, so that the actuator may lack the "
        f"right: declare it, @op.reconcile({view}, writes={{{', '.join(shown)}}}), and grant what `levelog rbac` prints"
    )


def _write(what: str, cls: Any, verbs: Any) -> Write:
    if not isinstance(cls, type) or not issubclass(cls, ResourceBase) or not hasattr(cls, "resource_type"):
        raise OperatorError(f"{what} names {cls!r}, which is not a class derived from Resource with a plural")
    refuse_external(f"{what}: ", cls)
    if isinstance(verbs, str) or not isinstance(verbs, Collection) or not verbs:
        raise OperatorError(f'{what} gives {cls.__name__} {verbs!r}, which is not a list of verbs: ["apply", "delete"]')
    for verb in verbs:
        if verb not in VERBS:
            raise OperatorError(f"{what} gives {cls.__name__} the verb {verb!r}; there are: {', '.join(VERBS)}")
    return Write(cls, tuple(sorted(set(verbs))))


def _verbs(writes: Iterable[Write]) -> list[str]:
    return [verb for write in writes for verb in write.verbs]


def _listed(verbs: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{verb}"' for verb in sorted(set(verbs))) + "]"
