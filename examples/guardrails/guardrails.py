"""Guardrails: namespaces without a ResourceQuota or a NetworkPolicy, and a quota for those that ask by a label.

Shows an operator without a custom resource: the parents are Namespaces, and what belongs to one is found by indices
whose keys are names of namespaces. `findings` only reports, since nothing reconciles it. `quotas` writes, but only
where the label `example.com/quota` asks for it.

Run it with `levelog run examples/guardrails/guardrails.py`, then read what it found with
`levelog levels --view findings --status drifting`.
"""

from collections.abc import Iterator

from msgspec import field

from levelog import Index, Intent, LabelledResource, Level, Manifest, Operator, Owner, Resource, Struct, apply, delete

op = Operator("guardrails")

SIZE = "example.com/quota"
SIZES = {
    "small": {"pods": "10", "requests.memory": "4Gi"},
    "large": {"pods": "100", "requests.memory": "64Gi"},
}


class Namespace(LabelledResource, version="v1", plural="namespaces", scope="Cluster"):
    """A namespace with its labels: a changed label wakes the views that take it."""


class BareNamespace(Resource, version="v1", plural="namespaces", kind="Namespace", scope="Cluster"):
    """A namespace for a view that reads no labels, and so is not woken by them."""


class QuotaSpec(Struct):
    hard: dict[str, str] = {}


class Quota(Resource, version="v1", plural="resourcequotas", kind="ResourceQuota"):
    spec: QuotaSpec = field(default_factory=QuotaSpec)


class Policy(Resource, group="networking.k8s.io", version="v1", plural="networkpolicies", kind="NetworkPolicy"):
    """Only that there is one counts."""


@op.index
def guards(quota: Quota) -> Iterator[tuple[str, str]]:
    """Names of quotas, by their namespace."""
    yield quota.metadata.namespace, quota.metadata.name


@op.index
def policies(policy: Policy) -> Iterator[tuple[str, str]]:
    """Names of network policies, by their namespace."""
    yield policy.metadata.namespace, policy.metadata.name


@op.index
def limits(quota: Quota) -> Iterator[tuple[Owner, dict[str, str]]]:
    """What a quota limits, by the namespace that owns it: quotas of others have no such owner."""
    if owner := quota.metadata.controlled_by(Namespace):
        yield owner, quota.spec.hard


@op.view
def findings(namespace: BareNamespace, guards: Index[str, str], policies: Index[str, str]) -> Level[set[str]]:
    """Kinds that a namespace should have, and those that it has."""
    name = namespace.metadata.name
    found = {"ResourceQuota": name in guards, "NetworkPolicy": name in policies}
    return Level(desired=set(found), actual={kind for kind, is_there in found.items() if is_there})


@op.view
def quotas(namespace: Namespace, limits: Index[Owner, dict[str, str]]) -> Level[dict[str, str] | None]:
    """Limits of our own quota: as the label asks, and as they are. None means that there is no such quota."""
    wanted = SIZES.get(namespace.metadata.labels.get(SIZE, ""))
    return Level(desired=wanted, actual=next(iter(limits[namespace.as_owner]), None))


@op.reconcile(quotas, writes={Quota: ["apply", "delete"]})
def limit(namespace: Namespace, level: Level[dict[str, str] | None]) -> Iterator[Intent]:
    """Apply the quota that the label asks for, or delete ours where no label asks any more."""
    if level.desired is None:
        yield delete(Quota, "default", namespace=namespace.metadata.name)
    else:
        yield apply(quota_manifest(namespace, level.desired))


def quota_manifest(namespace: Namespace, hard: dict[str, str]) -> Manifest:
    """The quota; levelog adds the namespace as its owner."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "default", "namespace": namespace.metadata.name},
        "spec": {"hard": hard},
    }
