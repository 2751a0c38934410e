"""An operator that meets secret values wherever they can be; they come from the environment, none is in the file."""

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from levelog import External, GiveUp, Intent, Level, Manifest, Operator, Resource, Struct, apply, call

VAULTS_FILE: Final = Path(__file__)
RULES: Final = "vaults.example.com:spec.password,annotation:vault.example.com/*,services:spec.externalName"
NAMES: Final = (
    *("SECRET", "VARIABLE", "ANNOTATION", "FIELD"),  # in objects of users
    *("CHILD_SECRET", "CHILD_VARIABLE", "CHILD_ANNOTATION"),  # in manifests of children
    *("INVALID", "DENIED_SECRET", "DENIED_VARIABLE"),  # in manifests that the API refuses
    *("CALLED", "POLLED"),  # in a manifest, and in what an effect and a source raise
)
_value: Final = {name: os.environ.get(f"CANARY_{name}", "") for name in NAMES}


class VaultSpec(Struct):
    password: str


class Vault(Resource, group="example.com", version="v1", plural="vaults"):
    spec: VaultSpec


class Secret(Resource, version="v1", plural="secrets"):
    data: dict[str, str]


class Pod(Resource, version="v1", plural="pods"):
    spec: dict[str, Any]


class ConfigMap(Resource, version="v1", plural="configmaps"):
    pass


class Service(Resource, version="v1", plural="services"):
    pass


class Deployment(Resource, group="apps", version="v1", plural="deployments"):
    pass


class Bucket(External, plural="buckets"):
    pass


op = Operator("vaults")
_calls: list[str] = []


@op.index
def pods(pod: Pod) -> Iterator[tuple[str, dict[str, Any]]]:
    yield pod.metadata.name, pod.spec


@op.index(of=ConfigMap)
def notes(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield found["metadata"]["name"], found["metadata"].get("annotations")


@op.index(errors="ignore")
def broken(secret: Secret) -> Iterator[tuple[str, str]]:
    raise ValueError(f"what is {secret}?")
    yield "", ""


@op.view
def failing(vault: Vault) -> Level[str]:
    raise ValueError(f"what is {vault}?")


@op.children(Vault, of=[Secret, Deployment])
def stored(vault: Vault) -> Iterator[Manifest]:
    annotations = {"vault.example.com/token": _value["CHILD_ANNOTATION"]}
    metadata = {"name": f"{vault.metadata.name}-own", "annotations": annotations}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": _value["CHILD_SECRET"]}}
    labels = {"app": "vault"}
    template = {"metadata": {"labels": labels, "annotations": annotations}, **_pod_spec(_value["CHILD_VARIABLE"])}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


@op.effect
def tell(name: str) -> None:
    """Called once what the manifests hold is known as secret."""
    _calls.append(name)
    if len(_calls) > 1:
        raise GiveUp(f"nobody takes {_value['CALLED']}")
    raise ValueError(f"nobody heard {_value['CALLED']}")


@op.source(Bucket, every=timedelta(milliseconds=200))
def poll() -> list[Bucket]:
    if _calls:
        raise ValueError(f"nobody answers to {_value['POLLED']}")
    return []


@op.index
def regions(bucket: Bucket) -> Iterator[tuple[str, str]]:
    yield bucket.metadata.name, ""


@op.view
def refused(vault: Vault) -> Level[str]:
    return Level(desired=vault.metadata.name, actual="")


@op.reconcile(refused, writes={Service: ["apply"], Secret: ["apply"], Pod: ["apply"]})
def write(vault: Vault) -> Iterator[Intent]:
    service = {"type": "ExternalName", "externalName": _value["INVALID"]}
    yield apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "denied"}, "spec": service})
    secret = {"token": _value["DENIED_SECRET"], "a": _value["CALLED"], "b": _value["POLLED"]}
    yield apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "denied"}, "stringData": secret})
    yield apply(pod("denied", _value["DENIED_VARIABLE"]))
    yield call(tell, vault.metadata.name)


def pod(name: str, value: str) -> Manifest:
    """A pod with a variable."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **_pod_spec(value)}


def _pod_spec(value: str) -> dict[str, Any]:
    container = {"name": "web", "image": "web:1", "env": [{"name": "GREETING", "value": value}]}
    return {"spec": {"containers": [container]}}
