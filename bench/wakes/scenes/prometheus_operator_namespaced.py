"""prometheus-operator that may not list namespaces: it gets each of its own every 15 s."""

from typing import Any, Final

import yaml

from bench.wakes.built import program, source
from bench.wakes.lab import Lab
from bench.wakes.scenes import prometheus_operator
from rigs.ports import free_port

NAME: Final = "prometheus-operator-namespaced"
LEFT_OUT: Final = ("system:apiserver",)
INTERESTING: Final = prometheus_operator.INTERESTING
_SERVICE_MONITORS: Final = "/apis/monitoring.coreos.com/v1/namespaces/team/servicemonitors"
_ROLE: Final = "example/rbac/prometheus-operator/prometheus-operator-cluster-role.yaml"


async def run(lab: Lab) -> None:
    """A namespace is labelled, and no longer, so that its ServiceMonitor counts or does not."""
    await prometheus_operator.install(lab)
    await lab.create("/api/v1/namespaces", "Namespace", "team", {})
    rules: list[Any] = yaml.safe_load(
        (source(prometheus_operator.NAME, prometheus_operator.MODULE) / _ROLE).read_text()
    )["rules"]
    for rule in rules:
        if rule["resources"] == ["namespaces"]:
            rule["verbs"] = ["get"]
    kubeconfig = await lab.plane.kubeconfig_for(rules)
    lab.start(
        [
            program(prometheus_operator.NAME),
            "--namespaces=default,team",
            f"--web.listen-address=127.0.0.1:{free_port()}",
        ],
        {"KUBECONFIG": str(kubeconfig)},
    )
    selected = {"matchLabels": {"monitored": "yes"}}
    prometheus = {"replicas": 1, "serviceMonitorNamespaceSelector": selected, "serviceMonitorSelector": {}}
    await lab.create(prometheus_operator.PROMETHEUSES, "Prometheus", "main", prometheus)
    monitor = {"selector": {"matchLabels": {"app": "web"}}, "endpoints": [{"port": "web"}]}
    await lab.create(_SERVICE_MONITORS, "ServiceMonitor", "web", monitor)
    await lab.idle()

    async def label(turn: int) -> None:
        await lab.patch("/api/v1/namespaces/team", {"metadata": {"labels": {"monitored": ("yes", "no")[turn % 2]}}})

    await lab.change(label, seconds=37, times=6)
