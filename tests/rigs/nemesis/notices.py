"""An operator whose Notices want copies as ConfigMaps, and an announcement of each edition.

Its effect adds a line to the file that `NOTICES_CALLS` names: idempotency key, name and edition.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from levelog import Call, Index, Intent, Level, Manifest, Operator, Resource, Struct, call

NOTICES_FILE: Final = Path(__file__)
CALLS: Final = "NOTICES_CALLS"


class NoticeSpec(Struct):
    edition: int
    copies: int


class Notice(Resource, group="example.com", version="v1", plural="notices"):
    spec: NoticeSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Edition(Struct):
    name: str
    edition: int


op = Operator("notices")


@op.children(Notice, of=[ConfigMap])
def copies(notice: Notice) -> Iterator[Manifest]:
    """Each copy shows the edition."""
    for number in range(notice.spec.copies):
        name = f"{notice.metadata.name}-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"edition": str(notice.spec.edition)},
        }


@op.effect
def announce(request: Edition, idempotency_key: str) -> None:
    """Leave a trace outside of all servers."""
    with Path(os.environ[CALLS]).open("a") as file:
        print(idempotency_key, request.name, request.edition, file=file, flush=True)


@op.view
def announced(notice: Notice, announce: Index[str, Call[Edition, None]]) -> Level[int]:
    """The newest edition has been announced."""
    told = [each.request.edition for each in announce[notice.metadata.uid]]
    return Level(desired=notice.spec.edition, actual=told[0] if told else 0)


@op.reconcile(announced, writes={})
def tell(notice: Notice, level: Level[int]) -> Iterator[Intent]:
    yield call(announce, Edition(notice.metadata.name, notice.spec.edition))


def notice(name: str, edition: int, copies: int) -> dict[str, Any]:
    """The manifest of a Notice."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Notice",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"edition": edition, "copies": copies},
    }
