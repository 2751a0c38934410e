"""Depot: an operator that uses each kind of view, index and write there is, so that replay has all of them to repeat.

What a Shop's labels and notes say makes handlers raise, effects give up, and reconcile functions outlast their batch.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import field

from levelog import (
    Call,
    GiveUp,
    Index,
    Intent,
    Level,
    Manifest,
    Objects,
    Operator,
    Resource,
    Retry,
    Struct,
    apply,
    call,
    event,
    patch,
    patch_status,
)
from levelog.levels import Levels

DEPOT_FILE: Final = Path(__file__)
SHOPS: Final = "shops.example.com"
BUSY: Final = timedelta(seconds=3)
RIPE: Final = timedelta(seconds=2)

op = Operator("depot")


class ShopSpec(Struct):
    size: int = 1
    notes: tuple[str, ...] = ()
    price: str | None = None


class ShopStatus(Struct):
    rank: int | None = None


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec
    status: ShopStatus = field(default_factory=ShopStatus)


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = field(default_factory=dict[str, str])


class Service(Resource, version="v1", plural="services"):
    pass


class Pod(Resource, version="v1", plural="pods"):
    pass


class Note(Struct):
    text: str


@op.children(Shop, of=[ConfigMap, Service])
def parts(shop: Shop) -> Iterator[Manifest]:
    """A Service with a port that clients write as a text, once the ConfigMap is there."""
    name = shop.metadata.name
    metadata = {"name": name}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"port": str(8000 + shop.spec.size)}}
    if shop.spec.size > 1:
        spec = {"selector": {"shop": name}, "ports": [{"port": 80, "targetPort": "http"}]}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@op.effect
def notify(request: Note, idempotency_key: str) -> int:
    """Refused for good where a note says so; at the first time where it says `shy`."""
    if request.text == "forbidden":
        raise GiveUp("not ours")
    if request.text == "shy" and idempotency_key not in _tried:
        _tried.add(idempotency_key)
        raise Retry("later", delay=timedelta(milliseconds=50))
    return len(request.text)


_tried: set[str] = set()


@op.view
def told(shop: Shop, notify: Index[str, Call[Note, int]]) -> Level[dict[str, int]]:
    made = {each.name: each.result for each in notify[shop.metadata.uid]}
    return Level({note: len(note) for note in shop.spec.notes}, {n: made[n] for n in shop.spec.notes if n in made})


@op.reconcile(told)
async def tell(shop: Shop, level: Level[dict[str, int]]) -> list[Intent]:
    """Outlasts the batch that called it."""
    await asyncio.sleep(0.05)
    if "boom" in shop.spec.notes:
        raise RuntimeError("boom")
    return [call(notify, Note(note), name=note) for note in sorted(level.drift.missing)]


@op.index
def sizes(shop: Shop) -> Iterator[tuple[str, int]]:
    yield shop.metadata.name, shop.spec.size


@op.view
def rank(shop: Shop, sizes: Index[str, int]) -> Level[int | None]:
    """Reads the whole index: one more than the number of larger shops; none if there is no other."""
    larger = sum(1 for name in sizes if max(sizes[name], default=0) > shop.spec.size)
    return Level(larger + 1 if len(sizes) > 1 else None, shop.status.rank)


@op.reconcile(rank, writes={Shop: ["patch_status"]})
def show_rank(shop: Shop, level: Level[int | None]) -> Iterator[Intent]:
    yield patch_status(shop, {"rank": level.desired})


@op.view(reads=[ConfigMap])
def priced(shop: Shop, objects: Objects) -> Level[str | None]:
    prices = objects.get(ConfigMap, "prices")
    return Level(prices.data.get(shop.metadata.name) if prices else None, shop.spec.price)


@op.reconcile(priced, writes={Shop: ["patch"]})
def price(shop: Shop, level: Level[str | None]) -> Iterator[Intent]:
    yield patch(Shop, shop.metadata.name, {"spec": {"price": level.desired}}, namespace=shop.metadata.namespace)


@op.index(expires=BUSY)
def recent(pod: Pod) -> Iterator[tuple[str, str]]:
    yield pod.metadata.namespace, pod.metadata.name


@op.view
def busy(shop: Shop, recent: Index[str, str]) -> Level[list[str]]:
    """Drifts for as long as a pod has changed of late; what it writes closes nothing: rounds come by backoff."""
    return Level([], sorted(recent[shop.metadata.namespace]))


@op.reconcile(busy)
def say_busy(shop: Shop, level: Level[list[str]]) -> Iterator[Intent]:
    yield event("Busy", f"{len(level.actual)} pods")


@op.view
def ripe(shop: Shop, now: datetime) -> Level[bool]:
    """Wakes by its own time."""
    end = (shop.metadata.creation_timestamp or now) + RIPE
    return Level(desired=True, actual=now >= end, recheck_at=end if now < end else None)


@op.view(of=Shop)
def labelled(shop: Mapping[str, Any]) -> Level[dict[str, Any]]:
    """Raises for a Shop whose label `colour` has no value."""
    labels = shop["metadata"].get("labels", {})
    if "colour" in labels and not labels["colour"]:
        raise ValueError("no colour")
    return Level({"colour": "red"}, {"colour": labels.get("colour", "red")})


@op.index(of=ConfigMap, when=lambda found: "port" in found.get("data", {}))
def ports(found: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Raises for a port that is no number, which blocks who reads it, or lets all go on who may."""
    yield found["metadata"]["name"], int(found["data"]["port"])


@op.view
def served(shop: Shop, ports: Index[str, int]) -> Level[list[int]]:
    """Differs for as long as a note is forbidden, also while it is blocked."""
    wanted = [8000 + shop.spec.size]
    return Level([*wanted, 1] if "forbidden" in shop.spec.notes else wanted, list(ports[shop.metadata.name]))


@op.view
def standing(shop: Shop, levels: Levels) -> Level[dict[str, str]]:
    """Sees every other level of its Shop, and why, and in which order they come."""
    told = {name: f"{each.status} {each.reason}" for name, each in levels.items()}
    return Level({}, {**told, "order": " ".join(levels)})


@op.view(levels_of=[Shop])
def beside(shop: Shop, levels: Levels) -> Level[dict[str, str]]:
    """Sees the levels of the other Shop, which another processor may decide on."""
    found = levels.of(Shop, "b" if shop.metadata.name == "a" else "a")
    return Level({}, {name: f"{each.status} {each.reason}" for name, each in found.items()})


op.conditions(Shop)


edges = Operator("edges")


@edges.view(levels_of=["depot/told", "depot/standing", "depot/conditions"])
def across(shop: Shop, levels: Levels) -> Level[dict[str, str]]:
    """Sees levels of another operator, of its Shop and the other one, also such as are given levels themselves."""
    found = {f"{name} of {each}": level for each in "ab" for name, level in levels.of(Shop, each).items()}
    return Level({}, {name: f"{each.status} {each.reason}" for name, each in found.items()})


@edges.on.create
@edges.on.update
@edges.on.delete
async def register(shop: Shop, reason: str, retry: int) -> None:
    """Fails once for each edge."""
    if retry == 0:
        raise ConnectionError(f"no register for {shop.metadata.name}: {reason}")


@edges.on.field("spec.size", of=Shop, new=lambda size: size > 1)
def grow(shop: Mapping[str, Any], old: int | None, new: int) -> None:
    """Called for some sizes only."""


@edges.on.create(writes={ConfigMap: ["apply"]})
@edges.on.update
@edges.on.delete
async def file(shop: Shop, reason: str, retry: int) -> AsyncIterator[Intent]:
    """Fails once for each edge, halfway; what it yields is written once."""
    data = {"reason": reason, "size": str(shop.spec.size)}
    yield apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"file-{shop.metadata.name}"}, "data": data}
    )
    if retry == 0:
        raise ConnectionError(f"no cabinet for {shop.metadata.name}: {reason}")


@edges.timer(every=timedelta(hours=1), of=Shop)
def rotate(shop: Mapping[str, Any]) -> None:
    """Once, since no story takes an hour."""


def shop(name: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": "default", "labels": dict(labels or {})}
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": spec}


def config_map(name: str, **data: str) -> Manifest:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str) -> Manifest:
    metadata = {"name": name, "namespace": "default"}
    spec = {"containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
