"""`kopf.index`: an index of levelog, filled from a Kopf function's results."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from levelog.compat.kopf.attempts import KopfAdapter


class EntriesAdapter(KopfAdapter):
    """Calls a function of a Kopf file for what an object adds to an index.

    A dict gives keys and values, anything else but None is a value under the key None.
    """

    def entries(self, found: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """What the function returns, by key."""
        result = self._returned({**self.object_arguments(self.whole(found)), "retry": 0})
        if type(result) is dict:  # strictly, as in Kopf: a body is one value
            for key, value in result.items():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield key, msgspec.to_builtins(value, enc_hook=dict)
        elif result is not None:
            yield None, msgspec.to_builtins(result, enc_hook=dict)

    def _returned(self, kwargs: Mapping[str, Any]) -> Any:
        """What the function returns; an async one runs as far as it does without waiting. Raises TypeError after."""
        if not self.is_async:
            return self.function(**kwargs)
        running = self.function(**kwargs)
        try:
            running.send(None)
        except StopIteration as ended:
            return ended.value
        running.close()
        raise TypeError(f"index {self.id} waits for something; it computes from what it is given")
