"""`kopf.index`: an index of levelog, filled from a Kopf function's results."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from levelog.compat.kopf.attempts import Attempts, stand_for
from levelog.handlers.fingerprints import fingerprint, value_fingerprint
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.readers import ObjectReader
from levelog.selectors import Selector
from levelog_base.mappings import plain
from levelog_base.wire.canonical import digest

_CODE: Final = "kopf indices 1"
"""Stands for this module in fingerprints: raised when the same objects have other entries."""


def kopf_index(name: str, attempts: Attempts) -> IndexHandler:
    """The index: a dict gives keys and values, anything else but None is a value under the key None."""
    declared = attempts.declared
    filters, resource = declared.filters, declared.cls.resource_type

    def takes(found: Any) -> bool:
        return filters.take(attempts.object_arguments(plain(found)))

    def entries(found: Any) -> Iterator[tuple[Any, Any]]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **plain(found)}
        result = _returned(attempts, {**attempts.object_arguments(body), "retry": 0})
        if type(result) is dict:  # strictly, as in Kopf: a body is one value
            for key, value in result.items():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield key, msgspec.to_builtins(value, enc_hook=dict)
        elif result is not None:
            yield None, msgspec.to_builtins(result, enc_hook=dict)

    stand_for(entries, attempts.function)
    selector = Selector() if filters.takes_all else Selector(when=takes)
    code = (attempts.id, filters, declared.param)
    return IndexHandler(
        entries,
        ObjectReader(declared.cls, selector, is_plain=True),
        Iterator[tuple[Any, Any]],
        name=name,
        code=digest(_CODE, fingerprint(attempts.function), value_fingerprint(code)),
        errors="ignore",
    )


def _returned(attempts: Attempts, kwargs: Mapping[str, Any]) -> Any:
    """What the function returns; an async one runs as far as it does without waiting. Raises TypeError if it waits."""
    function: Callable[..., Any] = attempts.function
    if not attempts.is_async:
        return function(**kwargs)
    running = function(**kwargs)
    try:
        running.send(None)
    except StopIteration as ended:
        return ended.value
    running.close()
    raise TypeError(f"index {attempts.id} waits for something; it computes from what it is given")
