"""The operator of Dask, by Kopf: each 5 s it asks whether a pod is ready, and how many workers the scheduler wants."""

from typing import Final

from bench.wakes.built import environment, source_of_package
from bench.wakes.lab import Lab
from rigs.ports import free_port

NAME: Final = "dask-kubernetes"
LEFT_OUT: Final = ("system:apiserver",)
INTERESTING: Final = [
    {"group": "", "resources": ["pods", "services"]},
    {"group": "apps", "resources": ["deployments"]},
    {"group": "kubernetes.dask.org"},
]
_API: Final = "/apis/kubernetes.dask.org/v1/namespaces/default"
_ROUTES: Final = "['distributed.http.scheduler.api','distributed.http.health']"


async def run(lab: Lab) -> None:
    """A scheduler that wants no workers, while somebody raises the least number that there are to be."""
    programs = environment(NAME)
    chart = source_of_package(programs, "dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator"
    for path in sorted((chart / "crds").iterdir()):
        await lab.apply_file(path)
    await lab.plane.start_controller_manager(["deployment-controller", "replicaset-controller"])
    scheduler, dashboard = free_port(), free_port()
    lab.start(
        [
            programs / "dask",
            "scheduler",
            "--host=127.0.0.1",
            f"--port={scheduler}",
            f"--dashboard-address=127.0.0.1:{dashboard}",
        ],
        {"DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": _ROUTES},
    )
    # The operator looks the scheduler's Service up by its name in the cluster's DNS.
    hosts = lab.plane.folder / "hosts"
    hosts.write_text("127.0.0.1 localhost web-scheduler.default\n")
    kopf = f"exec {programs}/kopf run --all-namespaces --standalone -m dask_kubernetes.operator.controller"
    lab.start(["unshare", "--mount", "sh", "-c", f"mount --bind {hosts} /etc/hosts && {kopf}"])
    container = {"image": "ghcr.io/dask/dask:2026.3.0"}
    ports = [
        {"name": "tcp-comm", "port": scheduler, "targetPort": "tcp-comm"},
        {"name": "http-dashboard", "port": dashboard, "targetPort": "http-dashboard"},
    ]
    chosen = {"dask.org/cluster-name": "web", "dask.org/component": "scheduler"}
    cluster = {
        "worker": {"replicas": 1, "spec": {"containers": [{"name": "worker", "args": ["dask-worker"], **container}]}},
        "scheduler": {
            "spec": {"containers": [{"name": "scheduler", "args": ["dask-scheduler"], **container}]},
            "service": {"type": "ClusterIP", "selector": chosen, "ports": ports},
        },
    }
    await lab.create(f"{_API}/daskclusters", "DaskCluster", "web", cluster)
    await lab.make_ready("default", "dask.org/component=scheduler", 1)
    autoscaler = {"cluster": "web", "minimum": 1, "maximum": 20}
    await lab.create(f"{_API}/daskautoscalers", "DaskAutoscaler", "web", autoscaler)
    await lab.idle()

    async def want_more(turn: int) -> None:
        await lab.patch(f"{_API}/daskautoscalers/web", {"spec": {"minimum": 2 + turn}})

    await lab.change(want_more, seconds=23, times=6)
