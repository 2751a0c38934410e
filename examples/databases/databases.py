"""Databases: an operator that was written for Kopf, with one import changed.

Each Database has a claim for its data and a ConfigMap that says how to reach it. It needs a server, which is a pod with
the label `app: database-server`. Run it with `levelog run examples/databases/databases.py`, where `pip install
kubernetes` was run, after `kubectl apply -f examples/databases/crd.yaml`.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import kubernetes.client
import kubernetes.config

from levelog.compat import kopf  # before: import kopf

DATABASES = ("example.com", "v1", "databases")
KEEP = "example.com/keep"
CONFLICT, NOT_FOUND = 409, 404


@kopf.on.startup()
def connect(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    settings.persistence.finalizer = "databases.example.com/finalizer"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        kubernetes.config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        kubernetes.config.load_kube_config(os.environ.get("KUBECONFIG"))  # type: ignore[no-untyped-call]
    memo.core = kubernetes.client.CoreV1Api()


@kopf.on.cleanup()
def disconnect(memo: kopf.Memo, **_: Any) -> None:
    memo.core.api_client.close()


@kopf.index("pods", labels={"app": "database-server"})
def servers(name: str, namespace: str, status: kopf.Status, **_: Any) -> dict[tuple[str, str], str]:
    """Address of each server, by its namespace and name."""
    return {(namespace, name): status.get("podIP", f"{name}.{namespace}")}


@kopf.on.create(*DATABASES, backoff=10)
@kopf.on.resume(*DATABASES)
def created(
    spec: kopf.Spec,
    name: str,
    namespace: str,
    servers: kopf.Index[Any, str],
    memo: kopf.Memo,
    patch: kopf.Patch,
    **_: Any,
) -> dict[str, str]:
    """Claim what the data need, once the server is there, and say how to reach it."""
    if (namespace, spec["server"]) not in servers:
        raise kopf.TemporaryError(f"the server {spec['server']} is not there yet", delay=5)
    claim = {
        "metadata": {"name": f"{name}-data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{gigabytes(spec)}Gi"}}},
    }
    kopf.adopt(claim)
    ensure(memo.core.create_namespaced_persistent_volume_claim, namespace, claim)
    [host] = servers[namespace, spec["server"]]
    reach = {"metadata": {"name": f"{name}-connection"}, "data": {"host": host, "database": name}}
    kopf.adopt(reach)
    kopf.label(reach, {"app": "database"})
    ensure(memo.core.create_namespaced_config_map, namespace, reach)
    patch.status["phase"] = "Ready"
    return {"claim": f"{name}-data", "host": host}


@kopf.on.update(*DATABASES, field="spec.gigabytes", backoff=10)
def resized(
    spec: kopf.Spec, old: int, new: int, body: kopf.Body, name: str, namespace: str, memo: kopf.Memo, **_: Any
) -> int:
    """Let the claim grow, which the API refuses until it is bound; none can shrink."""
    if new < old:
        kopf.warn(body, reason="Shrunk", message=f"a claim of {old} GB cannot have {new}")
        raise kopf.PermanentError(f"{new} GB are less than {old}")
    size = {"spec": {"resources": {"requests": {"storage": f"{gigabytes(spec)}Gi"}}}}
    memo.core.patch_namespaced_persistent_volume_claim(f"{name}-data", namespace, size)
    return new


@kopf.on.field(*DATABASES, field="spec.users")
def users_changed(
    old: list[str] | None, new: list[str] | None, name: str, namespace: str, memo: kopf.Memo, **_: Any
) -> None:
    """A ConfigMap for each user who came, and none for one who went: each by a handler of its own."""
    for user in sorted({*(new or [])} - {*(old or [])}):

        @kopf.subhandler(id=user, retries=5, backoff=5)
        def granted(body: kopf.Body, user: str = user, **_: Any) -> None:
            grant = {"metadata": {"name": f"{name}-{user}"}, "data": {"user": user, "database": name}}
            kopf.adopt(grant)
            ensure(memo.core.create_namespaced_config_map, namespace, grant)
            kopf.info(body, reason="Granted", message=f"{user} may use it")

    for user in sorted({*(old or [])} - {*(new or [])}):

        @kopf.subhandler(id=user, retries=5, backoff=5)
        def revoked(body: kopf.Body, user: str = user, **_: Any) -> None:
            try:
                memo.core.delete_namespaced_config_map(f"{name}-{user}", namespace)
            except kubernetes.client.ApiException as error:
                if error.status != NOT_FOUND:
                    raise
            kopf.info(body, reason="Revoked", message=f"{user} may not use it")


@kopf.timer(*DATABASES, interval=3600, initial_delay=60, idle=30, field="spec.backups", value=True)
async def backed_up(status: kopf.Status, patch: kopf.Patch, name: str, logger: kopf.Logger, **_: Any) -> None:
    """Count the backups, for here is nothing to copy."""
    logger.info("a backup of %s", name)
    patch.status["backups"] = status.get("backups", 0) + 1
    patch.status["lastBackup"] = datetime.now(UTC).isoformat(timespec="seconds")


@kopf.on.delete(*DATABASES)
def deleted(annotations: kopf.Annotations, name: str, namespace: str, memo: kopf.Memo, retry: int, **_: Any) -> None:
    """Wait while somebody wants it kept; the claim and the ConfigMaps go with their owner."""
    if KEEP in annotations:
        raise kopf.TemporaryError(f"{annotations[KEEP]} wants it kept, asked {retry + 1} times", delay=5)
    last = {"metadata": {"name": f"{name}-last"}, "data": {"database": name}}
    ensure(memo.core.create_namespaced_config_map, namespace, last)


def gigabytes(spec: Mapping[str, Any]) -> int:
    return int(spec.get("gigabytes", 1))


def ensure(create: Any, namespace: str, manifest: Mapping[str, Any]) -> None:
    """Create what may be there already: a handler may be called twice."""
    try:
        create(namespace, manifest)
    except kubernetes.client.ApiException as error:
        if error.status != CONFLICT:
            raise
