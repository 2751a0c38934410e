"""`levelog run examples/webs/webs.py` on a real API server, with the permissions that it needs and no others."""

from pathlib import Path
from typing import Any

import yaml

from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS, WEBS_FILE, Levelog
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": ["example.com"], "resources": ["webs"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "get", "create", "patch", "delete"]},
]


async def test_pods_follow_the_web_with_one_write_each(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = private_control_plane
    api, levelog = cluster.admin, Levelog(tmp_path, await cluster.kubeconfig_for(RULES))
    webs, pods = "/apis/example.com/v1/namespaces/default/webs", "/api/v1/namespaces/default/pods"

    async def names() -> list[str]:
        _, listed = await api.request("GET", pods)
        return sorted(pod["metadata"]["name"] for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"])

    async def become(*wanted: str) -> None:
        await until(names, f"pods {', '.join(wanted)}", accept=lambda found: found == sorted(wanted), seconds=60)

    async def written() -> list[tuple[str, str]]:
        requests = await cluster.audit.writes(resource="pods")
        return sorted((request.verb, request.name) for request in requests if "levelog" in request.user_agent)

    with levelog.start("run", WEBS_FILE) as running:
        await running.says("does not serve webs.example.com")
        manifest: dict[str, Any] = yaml.safe_load((WEBS / "crd.yaml").read_text())
        await api.create(DEFINITIONS, manifest)
        await api.apply(webs, yaml.safe_load((WEBS / "shop.yaml").read_text()))
        await become("shop-0", "shop-1", "shop-2")
        await levelog.in_sync()
        assert await written() == [("patch", "shop-0"), ("patch", "shop-1"), ("patch", "shop-2")]

        await api.patch(f"{webs}/shop", {"spec": {"replicas": 2}})
        await become("shop-0", "shop-1")
        await api.request("DELETE", f"{pods}/shop-0", {"gracePeriodSeconds": 0})
        await levelog.in_sync(3)
        await become("shop-0", "shop-1")
        assert (await written())[0] == ("delete", "shop-2")
        assert len(await written()) == 5
        assert await running.stops() == 0
