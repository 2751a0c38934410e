"""Cluster API's core probes each workload cluster's API server every 10 s: here, the one that it runs on."""

import base64
from typing import Any, Final

from bench.wakes.built import program, source
from bench.wakes.lab import Lab
from rigs.certificates import Authority
from rigs.ports import free_port

NAME: Final = "cluster-api"
MODULE: Final = "sigs.k8s.io/cluster-api"
LEFT_OUT: Final = ("system:apiserver",)
INTERESTING: Final = [
    {"group": "cluster.x-k8s.io"},
    {"group": "infrastructure.cluster.x-k8s.io"},
    {"group": "", "resources": ["nodes"]},
]
_CLUSTERS: Final = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters"
_INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
_PLAIN_CLUSTERS: Final = f"/apis/{_INFRASTRUCTURE}/v1/namespaces/default/plainclusters"


async def run(lab: Lab) -> None:
    """A cluster that runs; then clusters whose infrastructure is made only later."""
    for path in sorted((source(NAME, MODULE) / "config/crd/bases").iterdir()):
        await lab.apply_file(path)
    await lab.admin.create_crd("PlainCluster", group=_INFRASTRUCTURE)
    labels = {"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}
    await lab.patch(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/plainclusters.{_INFRASTRUCTURE}", labels)
    Authority(lab.plane.folder).sign("tls")
    lab.plane.folder.joinpath("tls.pem").rename(lab.plane.folder / "tls.crt")
    lab.start(
        [
            program(NAME),
            f"--webhook-port={free_port()}",
            f"--webhook-cert-dir={lab.plane.folder}",
            f"--health-addr=127.0.0.1:{free_port()}",
            f"--diagnostics-address=127.0.0.1:{free_port()}",
        ]
    )
    await _make_infrastructure(lab, "web")
    await _make_cluster(lab, "web")
    kubeconfig = base64.b64encode(lab.plane.kubeconfig.read_bytes()).decode()
    secret: dict[str, Any] = {
        "metadata": {"name": "web-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "web"}},
        "type": "cluster.x-k8s.io/secret",
        "data": {"value": kubeconfig},
    }
    await lab.admin.create("/api/v1/namespaces/default/secrets", secret)
    begun = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
    await lab.patch(f"{_CLUSTERS}/web/status", {"status": {"initialization": begun}})
    await lab.idle()

    async def order(turn: int) -> None:
        await _make_cluster(lab, f"web-{turn}")

    async def deliver(turn: int) -> None:
        await _make_infrastructure(lab, f"web-{turn}")

    await lab.change(order, deliver, seconds=33, times=2)


async def _make_infrastructure(lab: Lab, name: str) -> None:
    await lab.create(_PLAIN_CLUSTERS, "PlainCluster", name, {})
    await lab.patch(f"{_PLAIN_CLUSTERS}/{name}/status", {"status": {"initialization": {"provisioned": True}}})


async def _make_cluster(lab: Lab, name: str) -> None:
    infrastructure = {"apiGroup": _INFRASTRUCTURE, "kind": "PlainCluster", "name": name}
    endpoint = {"host": "127.0.0.1", "port": int(lab.plane.url.rpartition(":")[2])}
    await lab.create(
        _CLUSTERS, "Cluster", name, {"infrastructureRef": infrastructure, "controlPlaneEndpoint": endpoint}
    )
