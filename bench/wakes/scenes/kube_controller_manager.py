"""kube-controller-manager: an autoscaler, and a claim without a volume, each looked at every 15 s."""

from typing import Any, Final

from bench.wakes.lab import Lab

NAME: Final = "kube-controller-manager"
LEFT_OUT: Final = ("system:apiserver",)
INTERESTING: Final = [
    {"group": "apps", "resources": ["deployments", "deployments/scale"]},
    {"group": "autoscaling"},
    {"group": "metrics.k8s.io"},
]
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_METRICS: Final = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
_LABELS: Final = {"app": "web"}


async def run(lab: Lab) -> None:
    """The autoscaler wants what there is; then somebody scales by hand beyond its maximum."""
    await _serve_metrics(lab)
    await lab.plane.start_controller_manager()
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": _LABELS}, "spec": {"containers": [container]}}
    deployment = {"replicas": 2, "selector": {"matchLabels": _LABELS}, "template": template}
    await lab.admin.create(_DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": deployment})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    autoscaler = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4, "metrics": [metric]}
    await lab.admin.create(
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        {"metadata": {"name": "web"}, "spec": autoscaler},
    )
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    await lab.admin.create(
        "/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": claim}
    )
    await _measure(lab, 2)
    await lab.idle()

    async def scale_by_hand(turn: int) -> None:
        await lab.patch(f"{_DEPLOYMENTS}/web", {"spec": {"replicas": 5 + turn}})

    async def see_it_undone(_: int) -> None:
        await _measure(lab, 4)

    await lab.change(scale_by_hand, see_it_undone, seconds=22, times=6)


async def _measure(lab: Lab, count: int) -> None:
    """Use of exactly what the autoscaler aims at, of each pod."""
    for name in await lab.make_ready("default", "app=web", count):
        usage = [{"name": "web", "usage": {"cpu": "50m", "memory": "1Mi"}}]
        measured: dict[str, Any] = {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": name, "labels": _LABELS},
            "timestamp": "2026-01-01T01:00:00Z",
            "window": "30s",
            "containers": usage,
        }
        await lab.admin.apply(_METRICS, measured)


async def _serve_metrics(lab: Lab) -> None:
    """The resource of metrics-server, as a custom one: PodMetrics are what the lab writes."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "pods", "kind": "PodMetrics", "listKind": "PodMetricsList"}
    approved = {"api-approved.kubernetes.io": "unapproved, for a benchmark"}
    definition = {
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": approved},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await lab.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
