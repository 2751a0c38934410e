"""prometheus-operator: polls the pods of what is not available each minute, and the nodes."""

from typing import Any, Final

from bench.wakes.built import program, source
from bench.wakes.lab import Lab
from rigs.ports import free_port

NAME: Final = "prometheus-operator"
MODULE: Final = "github.com/prometheus-operator/prometheus-operator"
LEFT_OUT: Final = ("system:apiserver",)
INTERESTING: Final = [
    {"group": "", "resources": ["pods", "nodes", "endpoints", "namespaces"]},
    {"group": "apps", "resources": ["statefulsets"]},
]
PROMETHEUSES: Final = "/apis/monitoring.coreos.com/v1/namespaces/default/prometheuses"
_OTHERS: Final = {"thanosrulers", "alertmanagers", "alertmanagerconfigs"}


async def run(lab: Lab) -> None:
    """A Prometheus of two pods that are never ready: their kubelet changes its mind about why."""
    await install(lab)
    await lab.plane.start_controller_manager(["statefulset-controller"])
    await lab.create("/api/v1/nodes", "Node", "node", {})
    await _move(lab, 0)
    lab.start([program(NAME), f"--web.listen-address=127.0.0.1:{free_port()}", *_KUBELETS])
    prometheus = {"replicas": 2, "serviceAccountName": "prometheus"}
    await lab.create(PROMETHEUSES, "Prometheus", "main", prometheus)
    pods = await lab.objects("/api/v1/namespaces/default/pods", 2)
    for pod in pods:
        await lab.pod_status("default", pod, is_ready=False)
    await lab.idle()

    async def wait_for_something_else(turn: int) -> None:
        await lab.pod_status("default", pods[turn % 2], is_ready=False, reason=f"Because{turn}")

    async def move(turn: int) -> None:
        await _move(lab, turn + 1)

    await lab.change(wait_for_something_else, move, seconds=37)


async def install(lab: Lab) -> None:
    """The definitions of the operator's resources."""
    for path in sorted((source(NAME, MODULE) / "example/prometheus-operator-crd").iterdir()):
        await lab.apply_file(path)


async def _move(lab: Lab, turn: int) -> None:
    addresses: list[Any] = [{"type": "InternalIP", "address": f"192.0.2.{turn + 1}"}]
    await lab.patch("/api/v1/nodes/node/status", {"status": {"addresses": addresses}})


_KUBELETS: Final = ("--kubelet-service=kube-system/kubelet", "--kubelet-sync-period=30s")
