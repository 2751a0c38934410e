"""What type checkers take for an index, a view and so on, by what they return. Parameters are checked at load."""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from levelog.intents import Intent
from levelog.levels import Level
from levelog.resources import Manifest

Entries: TypeAlias = Iterable[tuple[Any, Any]] | Mapping[Any, Any] | None
Intents: TypeAlias = Iterable[Intent] | None
Children: TypeAlias = Manifest | Iterable[Manifest] | None

IndexF = TypeVar("IndexF", bound=Callable[..., Entries])
ViewF = TypeVar("ViewF", bound=Callable[..., Level[Any]])
EffectF = TypeVar("EffectF", bound=Callable[..., Any])
ReconcileF = TypeVar("ReconcileF", bound=Callable[..., Intents | AsyncIterable[Intent] | Awaitable[Intents]])
ChildrenF = TypeVar("ChildrenF", bound=Callable[..., Children])
