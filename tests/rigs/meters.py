"""Meters: an operator whose parents say by which kind of write `spec.wanted` is shown, so that writes can be counted.

`append` is a write that shows when it is made twice: the list then has an entry twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from levelog import (
    Index,
    Intent,
    Level,
    Manifest,
    Operator,
    Owner,
    Resource,
    Struct,
    apply,
    create,
    delete,
    patch,
    patch_status,
)

METERS_FILE: Final = Path(__file__)
VERBS: Final = ("status", "merge", "append", "apply", "create")
METERS: Final = "meters.example.com"

op = Operator("meters")


class MeterSpec(Struct):
    verb: str
    wanted: int = 0
    shown: int = 0
    entries: tuple[int, ...] = ()


class MeterStatus(Struct):
    shown: int = 0


class Meter(Resource, group="example.com", version="v1", plural="meters"):
    spec: MeterSpec
    status: MeterStatus = msgspec.field(default_factory=MeterStatus)


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


@op.index
def made(config: ConfigMap) -> Iterator[tuple[Owner, str]]:
    """Names of ConfigMaps by the Meter that owns them."""
    if owner := config.metadata.controlled_by(Meter):
        yield owner, config.metadata.name


@op.view
def shown(meter: Meter, made: Index[Owner, str]) -> Level[list[str]]:
    """What is shown: a number, or the name of a ConfigMap."""
    name, spec = meter.metadata.name, meter.spec
    if spec.verb in {"apply", "create"}:
        return Level(desired=[f"{name}-{spec.wanted}"], actual=sorted(made[meter.as_owner]))
    actual = {"status": meter.status.shown, "merge": spec.shown, "append": spec.entries[-1] if spec.entries else 0}
    return Level(desired=[str(spec.wanted)], actual=[str(actual[spec.verb])])


@op.reconcile(shown)
def show(meter: Meter, level: Level[list[str]]) -> Iterator[Intent]:
    name, spec = meter.metadata.name, meter.spec
    match spec.verb:
        case "status":
            yield patch_status(meter, {"shown": spec.wanted})
        case "merge":
            yield patch(Meter, name, {"spec": {"shown": spec.wanted}})
        case "append":
            yield patch(Meter, name, [{"op": "add", "path": "/spec/entries/-", "value": spec.wanted}])
        case _:
            manifest = config_map(level.desired[0])
            if level.desired[0] not in level.actual:
                yield apply(manifest) if spec.verb == "apply" else create(manifest)
            for old in level.actual:
                if old not in level.desired:
                    yield delete(ConfigMap, old)


def config_map(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"name": name}}


def meter(name: str, verb: str, wanted: int) -> dict[str, Any]:
    """A manifest."""
    spec = {"verb": verb, "wanted": wanted, "entries": []}
    return {"apiVersion": "example.com/v1", "kind": "Meter", "metadata": {"name": name}, "spec": spec}


def numbers_of(found: Any, maps: Iterable[str]) -> list[int]:
    """What a Meter shows by its verb: a number, or those at the ends of the names of its ConfigMaps."""
    name, spec = found["metadata"]["name"], found["spec"]
    match spec["verb"]:
        case "status":
            return [found.get("status", {}).get("shown", 0)]
        case "merge":
            return [spec.get("shown", 0)]
        case "append":
            return (spec["entries"] or [0])[-1:]
        case _:
            return [int(each.removeprefix(f"{name}-")) for each in maps if each.startswith(f"{name}-")]
