"""kube-apiserver itself: its own controllers ask it, as `system:apiserver`, each 10 s."""

from typing import Final

from bench.wakes.lab import Lab

NAME: Final = "kube-apiserver"
LEFT_OUT: Final = ("nobody",)
INTERESTING: Final = [
    {"group": "", "resources": ["services", "namespaces"]},
    {"group": "coordination.k8s.io", "resources": ["leases"]},
]
_SERVICE: Final = "/api/v1/namespaces/default/services/kubernetes"


async def run(lab: Lab) -> None:
    """Somebody deletes the Service through which pods find the API server."""
    await lab.idle()

    async def delete(_: int) -> None:
        await lab.admin.request("DELETE", _SERVICE)

    await lab.change(delete, seconds=23, times=6)
