"""JSON patch (RFC 6902) on decoded objects, and its errors."""

import re
from collections.abc import Sequence
from typing import Any, Final

from levelog_base.wire.canonical import keys_of
from levelog_sandbox.api import refusals

Json = dict[str, Any]

_INDEX: Final = re.compile("[0-9]{1,9}")


class PatchFailedError(Exception):
    """A JSON patch operation cannot be carried out; the message names the operation and the path."""


def json_patch(target: Json, operations: Any) -> Json:
    """The target after all operations.

    Raises `StatusError` 400 when the patch is malformed, 422 when a test or a path fails; then nothing has changed.
    """
    if not isinstance(operations, list):
        raise refusals.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    result: Any = target
    for operation in operations:
        if not isinstance(operation, dict):
            raise refusals.bad_request("json patch: an operation is not an object")
        try:
            result = _carried_out(result, operation)
        except PatchFailedError as failure:
            raise refusals.StatusError(
                422, "Invalid", "the server rejected our request due to an error in our request", details={}
            ) from failure
    return result if isinstance(result, dict) else {}


def _carried_out(document: Any, operation: Json) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path"))
    match kind:
        case "add":
            return _put(document, path, _value(operation), is_new=True)
        case "replace":
            # The server's library replaces an absent key of an object, though RFC 6902 says that it must be there.
            _get(document, path[:-1])
            return _put(document, path, _value(operation), is_new=False)
        case "remove":
            return _removed(document, path)
        case "test":
            actual = _get(document, path) if _exists(document, path) else None
            if actual != _value(operation) or isinstance(actual, bool) is not isinstance(operation["value"], bool):
                raise PatchFailedError(f"test of {operation['path']} failed")
            return document
        case "copy" | "move":
            source = _pointer(operation.get("from"))
            value = _get(document, source)
            return _put(_removed(document, source) if kind == "move" else document, path, value, is_new=True)
        case _:
            raise PatchFailedError(f"unexpected kind: {kind}")


def _value(operation: Json) -> Any:
    if "value" not in operation:
        raise PatchFailedError(f"{operation['op']} {operation['path']} has no value")
    return operation["value"]


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchFailedError(f"not a JSON pointer: {text!r}")
    return keys_of(text)


def _index(items: list[Any], key: str, *, is_new: bool) -> int:
    if key == "-" and is_new:
        return len(items)
    index = int(key) if _INDEX.fullmatch(key) else -1
    if not 0 <= index < len(items) + is_new:
        raise PatchFailedError(f"no item {key}")
    return index


def _get(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list):
            document = document[_index(document, key, is_new=False)]
        else:
            raise PatchFailedError(f"nothing at {key}")
    return document


def _exists(document: Any, path: Sequence[str]) -> bool:
    try:
        _get(document, path)
    except PatchFailedError:
        return False
    return True


def _put(document: Any, path: Sequence[str], value: Any, *, is_new: bool) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and key not in document:
            raise PatchFailedError(f"nothing at {key}")
        return {**document, key: _put(document.get(key), rest, value, is_new=is_new)}
    if isinstance(document, list):
        index = _index(document, key, is_new=is_new and not rest)
        if rest:
            return [*document[:index], _put(document[index], rest, value, is_new=is_new), *document[index + 1 :]]
        return [*document[:index], value, *document[index + (not is_new) :]]
    raise PatchFailedError(f"nothing at {key}")


def _removed(document: Any, path: Sequence[str]) -> Any:
    if not path:
        raise PatchFailedError("the root cannot be removed")
    key, rest = path[0], path[1:]
    if rest:
        return _put(document, [key], _removed(_get(document, [key]), rest), is_new=False)
    if isinstance(document, dict) and key in document:
        return {name: item for name, item in document.items() if name != key}
    if isinstance(document, list):
        index = _index(document, key, is_new=False)
        return [*document[:index], *document[index + 1 :]]
    raise PatchFailedError(f"nothing at {key}")
