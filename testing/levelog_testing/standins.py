"""What a simulation calls in place of effects: nothing outside it is touched unless a test says so."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from levelog.effects import EffectHandler, GiveUp
from levelog.errors import LevelogError


class StandIns:
    """Effects by `operator/effect`, with other functions in their place; `count` is told the name of each call."""

    def __init__(self, effects: Mapping[str, EffectHandler], count: Callable[[str], None]) -> None:
        self._effects = effects
        self._count = count
        self._given: set[str] = set()
        self.handlers = {name: self._handler(name, _nothing) for name in effects}
        """What is called."""

    def put(self, effect: Callable[..., Any], function: Callable[[Any], Any]) -> None:
        """Have the function called with the request. Raises KeyError for what is no effect of the operators."""
        for name, handler in self._effects.items():
            if handler.function is effect:
                self._given.add(name)
                self.handlers[name] = self._handler(name, function)
                return
        raise KeyError(f"{getattr(effect, '__name__', effect)} is no effect of the operators of this simulation")

    def require(self, name: str) -> None:
        """Raises LevelogError for an effect whose result nobody gave, and that does not return None."""
        effect = self._effects[name]
        if name in self._given:
            return
        try:
            effect.kept(None)
        except GiveUp:
            raise LevelogError(
                f"a simulation calls no effects, and {effect.name} does not return None: say what it returns, "
                f"simulation.stand_in({effect.name}, lambda request: …)"
            ) from None

    def _handler(self, name: str, function: Callable[[Any], Any]) -> EffectHandler:
        effect = self._effects[name]

        def call(**arguments: Any) -> Any:
            self._count(name)
            return function(arguments[effect.request_parameter])

        other = copy.copy(effect)
        other.function = call
        other.is_async = inspect.iscoroutinefunction(function)
        return other


def _nothing(_: object) -> None:
    pass
