"""Versions of one operator, each a file of its own, for tests of what happens when code changes."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from levelog.operator import Operator
from levelog_cli.loading import load_operators

FIRST: Final = """
from collections import Counter
from collections.abc import Iterator

from levelog import Index, Intent, Level, Operator, Owner, Resource, Struct, apply

CALLS: Counter[str] = Counter()
op = Operator("webs")

class WebSpec(Struct):
    image: str
    replicas: int = 1

class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec

class Container(Struct):
    image: str

class PodSpec(Struct):
    containers: list[Container]

class Pod(Resource, version="v1", plural="pods"):
    spec: PodSpec

@op.index
def images(pod: Pod) -> Iterator[tuple[Owner, str]]:
    CALLS["images"] += 1
    if owner := pod.metadata.controlled_by(Web):
        yield owner, pod.spec.containers[0].image

@op.index
def names(pod: Pod) -> Iterator[tuple[Owner, str]]:
    CALLS["names"] += 1
    if owner := pod.metadata.controlled_by(Web):
        yield owner, pod.metadata.name

@op.view
def pictures(web: Web, images: Index[Owner, str]) -> Level[list[str]]:
    return Level(desired=[web.spec.image] * web.spec.replicas, actual=sorted(images[web.as_owner]))

@op.view
def counted(web: Web, names: Index[Owner, str]) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=len(names[web.as_owner]))

@op.reconcile(counted)
def fill(web: Web, level: Level[int]) -> Iterator[Intent]:
    for number in range(level.actual, level.desired):
        yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{web.metadata.name}-{number}"}})
"""


class Versions:
    """Writes versions of an operator into a folder and loads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, *changes: tuple[str, str]) -> Operator:
        """The first version with some passages replaced; the same changes give the same code."""
        source = FIRST
        for old, new in changes:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        path = self._folder / f"version{len(list(self._folder.glob('version*.py')))}.py"
        path.write_text(source)
        (operator,) = load_operators([path])
        return operator


def calls_of(operator: Operator) -> Counter[str]:
    """How often each index function of a loaded version was called."""
    scope: dict[str, Any] = operator.indices["names"].function.__globals__
    calls: Counter[str] = scope["CALLS"]
    return calls
