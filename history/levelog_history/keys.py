"""Why a record woke a view: the key of an index under which its object stands, and the fields that gave it.

Limit: an index function may compute a key from anything; what is named is each field that reads as the key does.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from levelog.handlers.callnames import in_words
from levelog_history.differences import fields_of
from levelog_history.explaining import CausingRecord, Explained
from levelog_history.revisions import Revision

_MOST: Final = 3
_OWNER: Final = 4
"""Parts of an `Owner`: group, kind, namespace, uid."""


def wake_text(explained: Explained, cause: CausingRecord) -> str:
    """`pods/default/a is in images under "shop", its label app`; empty: no key that the view read is known."""
    revisions = [each for each in cause.entries if isinstance(each, Revision) and each.body]
    for read in explained.reads:
        for revision in revisions if read.key else []:
            manifest, index = revision.manifest(), in_words(read.index).rpartition("/")[2]
            if fields := key_fields(read.key, manifest):
                verb = "was" if revision.is_gone else "is"
                return f"{revision.object} {verb} in {index} under {fields}"
            value = msgspec.json.decode(read.key)
            if left := [each.path for each in revision.differences if each.before == value]:
                return f"{revision.object} was in {index} under {read.key}, its {left[0]} until then"
    return ""


def key_fields(key: str, manifest: Mapping[str, Any]) -> str:
    """A key, with the fields of an object that read so: `"shop", its label app or name`, `its owner, Web shop`.

    Empty: none does. Of a tuple, these are the fields of each part.
    """
    parts: list[Any] = msgspec.json.decode(key if key.startswith("[") else f"[{key}]")
    if owner := _owner_of(parts, manifest):
        return f"its owner, {owner['kind']} {owner.get('name')}"
    found = [" or ".join(list(_saying(part, manifest))[:_MOST]) for part in parts]
    return f"{key}, its {' and '.join(found)}" if found and all(found) else ""


def _owner_of(parts: list[Any], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    if len(parts) != _OWNER:
        return None
    references = cast("list[dict[str, Any]]", (manifest.get("metadata") or {}).get("ownerReferences") or [])
    return next((each for each in references if each.get("uid") == parts[-1]), None)


def _saying(part: object, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Fields that hold one part of a key: labels and names first."""
    if isinstance(part, bool) or part in (None, ""):
        return
    metadata: dict[str, Any] = manifest.get("metadata") or {}
    for kind in ("labels", "annotations"):
        for name, each in cast("dict[str, Any]", metadata.get(kind) or {}).items():
            if each == part:
                yield f"{kind.removesuffix('s')} {name}"
    yield from (name for name in ("name", "namespace", "uid") if metadata.get(name) == part)
    content = {name: manifest[name] for name in ("spec", "data") if name in manifest}
    yield from (path for path, value in fields_of(content) if value == part and not isinstance(value, bool))
