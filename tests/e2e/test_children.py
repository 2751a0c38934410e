"""`@op.children` on a real API server: its defaults, its own forms of values, and a policy that mutates."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rigs.controlplane import ControlPlane
from rigs.kinds import definition
from rigs.levelog import Levelog
from rigs.stacks import STACKS_FILE, shop
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SHOPS = "/apis/example.com/v1/namespaces/default/shops"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CHILDREN = ("configmaps", "services", "deployments")
RULES = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": ["example.com"], "resources": ["shops"], "verbs": ["list", "watch"]},
    *(
        {"apiGroups": [group], "resources": names, "verbs": ["list", "watch", "get", "create", "patch", "delete"]}
        for group, names in (("", ["configmaps", "services"]), ("apps", ["deployments"]))
    ),
]


class Stack:
    """A running operator and what it wrote."""

    def __init__(self, cluster: ControlPlane, levelog: Levelog) -> None:
        self.api = cluster.admin
        self.levelog = levelog
        self._audit = cluster.audit

    async def written(self) -> list[tuple[str, str]]:
        requests = await self._audit.writes()
        mine = [each for each in requests if "levelog" in each.user_agent and each.resource in CHILDREN]
        return [(each.verb, each.resource) for each in mine]


@asynccontextmanager
async def running(cluster: ControlPlane, folder: Path) -> AsyncGenerator[Stack]:
    await cluster.admin.create(DEFINITIONS, definition("Shop"))
    levelog = Levelog(folder, await cluster.kubeconfig_for(RULES))
    process = levelog.start("run", STACKS_FILE)
    stack = Stack(cluster, levelog)
    try:
        yield stack
        assert await process.stops() == 0
    finally:
        process.kill()


FIRST = [("patch", resource) for resource in CHILDREN]


async def test_each_child_is_written_once_and_what_no_manifest_sets_leads_to_nothing(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with running(private_control_plane, tmp_path) as stack:
        await stack.api.apply(SHOPS, shop(cpu="1000m", replicas=2))
        await stack.levelog.in_sync(3)
        assert await stack.written() == FIRST
        _, deployment = await stack.api.request("GET", f"{DEPLOYMENTS}/shop")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"]["cpu"] == "1"  # the form in which the server keeps it
        assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"

        for number in range(12):
            await stack.api.patch(f"{DEPLOYMENTS}/shop/status", {"status": {"observedGeneration": number}})
            noise = {"metadata": {"annotations": {"noise": str(number)}}}
            await stack.api.patch((f"{DEPLOYMENTS}/shop", f"{SERVICES}/shop", f"{CONFIG_MAPS}/shop")[number % 3], noise)
        await stack.api.patch(f"{DEPLOYMENTS}/shop", {"spec": {"replicas": 5}})  # by hand, after all of that
        await stack.levelog.in_sync(4)
        assert await stack.written() == [*FIRST, ("patch", "deployments")]
        _, deployment = await stack.api.request("GET", f"{DEPLOYMENTS}/shop")
        assert deployment["spec"]["replicas"] == 2

        await stack.api.patch(f"{SHOPS}/shop", {"spec": {"parts": ["deployment"]}})
        await stack.levelog.in_sync(6)
        assert (await stack.written())[4:] == [("delete", "services"), ("delete", "configmaps")]


@pytest.mark.long
async def test_a_policy_that_mutates_a_child_costs_no_second_write(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    api = private_control_plane.admin
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "shouts"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["configmaps"],
                    }
                ]
            },
            "matchConditions": [{"name": "shop", "expression": 'object.metadata.name == "shop"'}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": '[JSONPatch{op: "replace", path: "/data/greeting", value: "HELLO"}]'},
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "shouts"},
        "spec": {"policyName": "shouts"},
    }
    await api.create(f"{ADMISSION}/mutatingadmissionpolicies", policy)
    await api.create(f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop"}, "data": {"greeting": "hello"}}

    async def mutates() -> bool:
        status, made = await api.request("POST", f"{CONFIG_MAPS}?dryRun=All", probe)
        return status == 201 and made["data"] == {"greeting": "HELLO"}

    await until(mutates, "a policy that is in force")
    async with running(private_control_plane, tmp_path) as stack:
        await stack.api.apply(SHOPS, shop())
        await stack.levelog.in_sync(3)
        assert await stack.written() == FIRST
        await stack.api.patch(f"{CONFIG_MAPS}/shop", {"metadata": {"annotations": {"noise": "1"}}})
        await api.request("DELETE", f"{CONFIG_MAPS}/shop")
        await stack.levelog.in_sync(4)
        assert await stack.written() == [*FIRST, ("patch", "configmaps")]
