"""`deploy/kubernetes.yaml` is taken by a real API server, and fits the accounts that `levelog rbac` prints."""

from pathlib import Path
from typing import Any, Final

import yaml

from levelog_cli.loading import load_application
from levelog_cli.monitoring.listening import ListenAddress
from levelog_cli.settings import Settings, variable
from levelog_cli.wiring.manifests import roles_of
from rigs.api import APPLY, MERGE_PATCH
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS_FILE

ROOT: Final = Path(__file__).parents[2]
DEPLOYMENTS: Final[list[dict[str, Any]]] = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
STRICTLY: Final = "dryRun=All&fieldManager=test&fieldValidation=Strict"


async def test_the_manifests_are_valid_and_their_pods_as_restricted_as_pods_can_be(control_plane: ControlPlane) -> None:
    api = control_plane.admin
    namespace = await api.create_namespace()
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await api.request("PATCH", f"/api/v1/namespaces/{namespace}", restricted, content_type=MERGE_PATCH)
    for deployment in DEPLOYMENTS:
        name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}?{STRICTLY}"
        status, answer = await api.request("PATCH", path, deployment, content_type=APPLY)
        assert status == 201, answer
        metadata = {"name": name, **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        status, answer = await api.request("POST", f"/api/v1/namespaces/{namespace}/pods?{STRICTLY}", pod)
        assert status == 201, answer


async def test_the_roles_are_valid(control_plane: ControlPlane) -> None:
    api = control_plane.admin
    namespace = await api.create_namespace()
    for namespaces in ((), (namespace,)):
        application = load_application(Settings(), [WEBS_FILE])
        text = roles_of(application, accounts_in=namespace, namespaces=namespaces)
        for document in filter(None, yaml.safe_load_all(text)):
            metadata = document["metadata"]
            root = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
            inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            path = f"{root}{inside}/{document['kind'].lower()}s/{metadata['name']}?{STRICTLY}"
            status, answer = await api.request("PATCH", path, document, content_type=APPLY)
            assert status == 201, answer


def test_each_process_runs_as_its_own_account_with_settings_that_exist() -> None:
    application = load_application(Settings(), [WEBS_FILE])
    printed = yaml.safe_load_all(roles_of(application, accounts_in="levelog", namespaces=()))
    accounts = {one["metadata"]["name"] for one in printed if one and one["kind"] == "ServiceAccount"}
    pods = [deployment["spec"]["template"]["spec"] for deployment in DEPLOYMENTS]
    assert {pod["serviceAccountName"] for pod in pods} == accounts
    known = {variable(name) for name in Settings.__struct_fields__}
    for pod in pods:
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert {each["name"] for each in container["env"]} <= known


def test_probes_ask_where_the_processes_listen() -> None:
    for deployment in DEPLOYMENTS:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        [port] = container["ports"]
        listen = next(each["value"] for each in container["env"] if each["name"] == variable("listen"))
        assert ListenAddress.parse(listen) == ListenAddress("", port["containerPort"])
        asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
        assert asked == {
            "liveness": {"path": "/healthz", "port": port["name"]},
            "readiness": {"path": "/readyz", "port": port["name"]},
        }
