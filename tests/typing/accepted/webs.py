"""Indices, views and reconcile functions, as users write them: both type checkers have nothing to say."""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from logging import Logger
from typing import Any, assert_type

from levelog import (
    ABSENT,
    PRESENT,
    AnnotatedResource,
    Drift,
    Index,
    Intent,
    LabelledResource,
    Level,
    LevelogError,
    LiveIndex,
    Manifest,
    Objects,
    Operator,
    OperatorError,
    Owner,
    Resource,
    Struct,
    apply,
    create,
    delete,
    patch,
    patch_status,
)


class Settings(Struct):
    image: str = "nginx"
    grace: int = 30


op = Operator("webs", settings=Settings())


class WebSpec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Quota(Resource, version="v1", plural="resourcequotas", kind="ResourceQuota"):
    pass


class Node(LabelledResource, version="v1", plural="nodes", scope="Cluster"):
    pass


class PodStatus(Struct):
    phase: str = "Pending"


class Pod(AnnotatedResource, version="v1", plural="pods"):
    status: PodStatus


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Service(Resource, version="v1", plural="services"):
    pass


class Account(Resource, version="v1", plural="serviceaccounts", kind="ServiceAccount"):
    pass


@op.index
def owned(pod: Pod) -> Iterator[tuple[Owner, str]]:
    owner = pod.metadata.controlled_by(Web)
    assert_type(owner, Owner | None)
    if owner is not None:
        yield owner, pod.metadata.name


@op.index(labels={"app": "web", "canary": ABSENT, "zone": lambda zone: zone == "a"}, annotations={"note": PRESENT})
def phases(pod: Pod) -> dict[str, tuple[str, str]]:
    return {pod.metadata.name: (pod.status.phase, pod.metadata.annotations["note"])}


@op.index(errors="ignore", expires=timedelta(hours=1))
def zones(node: Node) -> list[tuple[str, int]] | None:
    return [(node.metadata.labels["zone"], 1)] if "zone" in node.metadata.labels else None


@op.view
def pods(web: Web, owned: Index[Owner, str], phases: Index[str, tuple[str, str]]) -> Level[dict[str, str]]:
    names = owned[web.as_owner]
    assert_type(names, Collection[str])
    assert_type(owned.get(web.as_owner), Collection[str] | None)
    actual = {name: phase for name in names for phase, _ in phases[name]}
    assert_type(actual, dict[str, str])
    return Level({f"{web.metadata.name}-{n}": "Running" for n in range(web.spec.replicas)}, actual)


@op.view(labels={"app": PRESENT}, deleting=True, reads=[Quota])
def quotas(web: Web, objects: Objects, now: datetime, settings: Settings, logger: Logger) -> Level[bool]:
    quota = objects.get(Quota, "compute", namespace="default")
    assert_type(quota, Quota | None)
    logger.info("looked at %s", web.metadata.name)
    return Level(desired=True, actual=quota is not None, recheck_at=now + timedelta(seconds=settings.grace))


@op.view(of=Web, when=lambda web: not web.get("spec", {}).get("paused"))
def plain(web: Mapping[str, Any], owned: Index[Owner, str]) -> Level[int]:
    return Level(desired=web["spec"]["replicas"], actual=0 if owned.is_stale else len(owned[web["metadata"]["uid"]]))


@op.index(of=Pod)
def hosts(pod: Mapping[str, Any]) -> Iterator[tuple[str, None]]:
    yield pod["spec"].get("nodeName", ""), None


@op.children(Web, of=[ConfigMap, Service], reads=[Quota], force=False)
def parts(web: Web, objects: Objects, settings: Settings) -> Iterator[Manifest]:
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}}
    if objects.get(Quota, "compute") is not None:
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": web.metadata.name}}


@op.children(Web, of=Account)
def account(web: Web) -> Manifest | None:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": web.metadata.name}}


@op.view
def status(web: Web, zones: Index[str, int]) -> Level[int]:
    return Level(desired=len(zones), actual=sum(map(len, zones.values())))


@op.reconcile(pods, writes={Pod: ["apply", "delete", "patch"]}, timeout=timedelta(seconds=10))
def converge(web: Web, level: Level[dict[str, str]], settings: Settings) -> Iterator[Intent]:
    drift = level.drift
    assert_type(drift, Drift)
    for name in drift.missing:
        yield apply(pod(web, name, settings.image), force=True)
    for name in drift.extra | drift.changed:
        yield delete(Pod, name, propagation="Foreground")
    yield patch(Pod, "shop-0", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    yield patch(Pod, "shop-0", [{"op": "remove", "path": "/metadata/labels"}], if_unchanged=True)


@op.reconcile(quotas)
async def limit(web: Web, level: Level[bool], now: datetime, logger: Logger) -> AsyncIterator[Intent]:
    logger.info("missing since %s", now)
    if not level.actual:
        yield create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute"}}, owned=False)


@op.reconcile(status, writes={Web: {"patch_status", "delete"}})
async def report(web: Web, level: Level[int]) -> Iterable[Intent]:
    return [patch_status(web, {"zones": level.desired}), delete(web)]


@op.view
def size(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=0)


@op.reconcile(size)
def note(web: Web, level: Level[int]) -> Intent:
    return patch_status(web, {"size": level.desired})


@op.view
def rest(web: Web) -> Level[int]:
    return Level(desired=web.spec.replicas, actual=0)


@op.reconcile(rest)
async def settle(web: Web, level: Level[int]) -> Intent | None:
    return patch_status(web, {"rest": level.desired}) if level.desired else None


def pod(web: Web, name: str, image: str) -> Manifest:
    spec: Mapping[str, object] = {"containers": [{"name": "web", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@op.on.startup
async def begin(phases: LiveIndex[str, tuple[str, str]], settings: Settings, logger: Logger) -> None:
    logger.info("begins with %s", settings.image)
    await follow(phases)


@op.on.cleanup
def end(logger: Logger) -> None:
    logger.info("ends")


async def follow(phases: LiveIndex[str, tuple[str, str]]) -> None:
    assert_type(await phases.get("shop-0"), Collection[tuple[str, str]])
    async for values in phases.changes("shop-0"):
        assert_type(values, Collection[tuple[str, str]])
    await phases.until("shop-0", lambda values: any(phase == "Running" for phase, _ in values))
    is_stale, last_contact = await phases.contact()
    assert_type(is_stale, bool)
    assert_type(last_contact, datetime | None)


def both_errors(error: OperatorError) -> LevelogError:
    return error
