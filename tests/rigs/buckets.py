"""Buckets: classes with everything that a CustomResourceDefinition is made of."""
# ruff: noqa: RUF012 - msgspec copies defaults

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from levelog import CEL, Resource, Struct


class Tier(StrEnum):
    HOT = "hot"
    COLD = "cold"


class Rule(Struct):
    """Who may do what."""

    name: str
    verbs: frozenset[Literal["get", "put"]] = frozenset({"put", "get"})
    days: int | None = None


class OldSpec(Struct):
    size: int = 10


class BucketV1Alpha1(
    Resource, group="buckets.example.com", version="v1alpha1", plural="buckets", kind="Bucket", deprecated="use v1"
):
    spec: OldSpec


@CEL("self.least <= self.size", message="size is below least")
class BucketSpec(Struct, kw_only=True):
    """What a bucket
    should be."""

    region: Annotated[str, Meta(min_length=2, max_length=20, pattern="^[a-z-]+$"), CEL("self == oldSelf")]
    """Where it is; it does not move."""
    size: Annotated[int, Meta(ge=1, lt=1000, multiple_of=5)] = 10
    """In GiB."""
    least: int = 0
    share: Annotated[float, Meta(gt=0, le=1, description="Of the disk.")] = 0.5
    tier: Tier = Tier.HOT
    mode: Literal["fast"] | Literal["safe"] | None = None
    level: Literal[1, 2] = 1
    port: int | str = "http"
    owner: str | None
    until: datetime | None = None
    rules: Annotated[list[Rule], Meta(max_length=4)] = []
    first: Rule = Rule(name="all")
    """The rule that counts first."""
    labels: Annotated[dict[str, str], Meta(max_length=8)] = {}
    limits: dict[str, Rule] = {}
    weights: tuple[int | float, ...] = ()
    names: frozenset[str] = frozenset()
    extra: dict[str, Any] = {}
    anything: Any = None
    cpu: Annotated[object, Meta(extra_json_schema={"type": "string", "pattern": "^[0-9]+m$"})] = None


class BucketStatus(Struct):
    replicas: int = 0
    selector: str = ""
    since: datetime | None = None


class Bucket(
    Resource,
    group="buckets.example.com",
    version="v1",
    plural="buckets",
    storage=True,
    short_names=["bk"],
    categories=["all", "storage"],
    columns={"Size": "spec.size", "Since": ".status.since", "Age": "metadata.creationTimestamp"},
    wide_columns={"Port": "spec.port", "Rule": ".spec.rules[0].name"},
    scale=["spec.size", "status.replicas", "status.selector"],
):
    """A bucket: storage with a name."""

    spec: BucketSpec
    status: BucketStatus = BucketStatus()


class BucketTier(Resource, group="buckets.example.com", version="v1", plural="buckets", crd=False):
    """Reads a part of a bucket."""


class Certificate(Resource, group="cert-manager.io", version="v1", plural="certificates", crd=False):
    """Somebody else defines it."""


class Route(Resource, group="gateway.networking.k8s.io", version="v1", plural="httproutes"):
    """Kubernetes keeps the group."""


class Deployment(Resource, group="apps", version="v1", plural="deployments"):
    """It is built in."""
