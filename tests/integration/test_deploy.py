"""What `levelog manifests` writes is taken by a real API server, as restricted as pods can be, and by kustomize."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from levelog_base.errors import ConfigurationError
from levelog_cli.deployment.files import write
from levelog_cli.deployment.kustomization import contents, single
from levelog_cli.deployment.values import with_defaults
from levelog_cli.deployment.workloads import Workloads
from levelog_cli.loading import load_application
from levelog_cli.monitoring.listening import ListenAddress
from levelog_cli.settings import Settings, variable
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS_FILE, Levelog
from rigs.manifests import restricted_namespace, warnings_of


def workloads(inside: str = "levelog", *namespaces: str, file: Path = WEBS_FILE) -> Workloads:
    application = load_application(Settings(), [file])
    return Workloads(application=application, files=[file], image="levelog:local", inside=inside, namespaces=namespaces)


def objects(made: Workloads, *, is_single: bool = False) -> list[dict[str, Any]]:
    files = single(made) if is_single else contents(made)
    texts = [text for name, text in files.items() if name.endswith(".yaml") and "kustomization" not in name]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def deployments(made: Workloads) -> list[dict[str, Any]]:
    return [one for one in objects(made) if one["kind"] == "Deployment"]


async def test_the_manifests_are_valid_and_their_pods_as_restricted_as_pods_can_be(control_plane: ControlPlane) -> None:
    namespace = await restricted_namespace(control_plane.admin)
    for namespaces in ((), (namespace,)):
        made = workloads(namespace, *namespaces)
        for is_single in (False, True):
            assert await warnings_of(control_plane.admin, objects(made, is_single=is_single)) == []


def test_each_process_runs_as_its_own_account_with_settings_that_exist() -> None:
    accounts = {one["metadata"]["name"] for one in objects(workloads()) if one["kind"] == "ServiceAccount"}
    pods = [deployment["spec"]["template"]["spec"] for deployment in deployments(workloads())]
    assert {pod["serviceAccountName"] for pod in pods} == accounts
    known = {variable(name) for name in Settings.__struct_fields__}
    for pod in pods:
        [container] = pod["containers"]
        assert {each["name"] for each in container["env"]} <= known


def test_a_single_pod_has_one_account_a_volume_and_settings_that_exist() -> None:
    made = objects(workloads(), is_single=True)
    assert [one["kind"] for one in made] == [
        *("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"),
        *("StatefulSet", "Service", "NetworkPolicy"),
    ]
    spec = next(one["spec"] for one in made if one["kind"] == "StatefulSet")
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    values = {each["name"]: each["value"] for each in container["env"]}
    assert values.keys() <= {variable(name) for name in Settings.__struct_fields__}
    [claim] = spec["volumeClaimTemplates"]
    [place] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == claim["metadata"]["name"]]
    assert Path(values[variable("data_dir")]).parent == Path(place)
    assert (spec["replicas"], pod["serviceAccountName"]) == (1, made[1]["metadata"]["name"])


def test_manifests_bring_the_definitions_of_own_classes_and_say_what_is_open_and_why() -> None:
    made = workloads()
    for files in (contents(made), single(made)):
        [definition] = yaml.safe_load_all(files["base/definitions.yaml"])
        assert definition["metadata"]["name"] == "webs.example.com"
        assert "definitions.yaml" in files["base/kustomization.yaml"]
        assert files["base/networkpolicies.yaml"].startswith("# Egress names ports")


def test_what_is_asked_of_the_secret_is_what_the_readme_says() -> None:
    made = workloads()
    asked: set[str] = set()
    for one in objects(made):
        spec = one.get("spec", {}).get("template", {}).get("spec", {"containers": [], "volumes": []})
        for container in spec["containers"]:
            asked |= {e["valueFrom"]["secretKeyRef"]["key"] for e in container["env"] if "valueFrom" in e}
        for volume in spec["volumes"]:
            asked |= {item["key"] for item in volume.get("secret", {}).get("items", ())}
    assert asked == set(made.secret_keys())
    assert [key for key in asked if key not in contents(made)["README.md"]] == []


def test_probes_ask_where_the_processes_listen() -> None:
    for deployment in deployments(workloads()):
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        [port] = container["ports"]
        listen = next(each["value"] for each in container["env"] if each["name"] == variable("listen"))
        assert ListenAddress.parse(listen) == ListenAddress("", port["containerPort"])
        asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
        assert asked == {
            "liveness": {"path": "/healthz", "port": port["name"]},
            "readiness": {"path": "/readyz", "port": port["name"]},
        }


def test_the_code_is_mounted_where_the_commands_look_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "mounted_names.py").write_text("NAMES = ()\n")
    (folder / "mounted_webs.py").write_text(WEBS_FILE.read_text())
    for file, paths in ((WEBS_FILE, ["webs.py"]), (folder, ["mounted/mounted_names.py", "mounted/mounted_webs.py"])):
        made = workloads(file=file)
        code_map = with_defaults(made.operators())
        for spec in (one["spec"]["template"]["spec"] for one in [with_defaults(made.migration()), *deployments(made)]):
            [code] = [volume["configMap"] for volume in spec["volumes"] if "configMap" in volume]
            assert code["name"] == code_map["metadata"]["name"]
            mounted = {item["path"]: code_map["data"][item["key"]] for item in code["items"]}
            assert sorted(mounted) == paths
            assert mounted[paths[-1]] == WEBS_FILE.read_text()
            assert spec["containers"][0]["args"][1] == f"/operators/{file.name}"


def test_code_that_no_configmap_can_hold_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "webs.py"
    file.write_bytes(b"# -*- coding: latin-1 -*- caf\xe9\n" + WEBS_FILE.read_bytes())
    with pytest.raises(ConfigurationError, match=r"webs.py is not UTF-8"):
        contents(workloads(file=file))


def test_a_folder_with_something_in_it_is_written_again_only_if_wished_and_only_what_is_ours(tmp_path: Path) -> None:
    first = {path: path.read_text() for path in write(contents(workloads()), tmp_path, is_overwriting=False)}
    with pytest.raises(ConfigurationError, match="is not empty: give another folder, or --overwrite"):
        write(contents(workloads()), tmp_path, is_overwriting=False)
    (tmp_path / "base" / "old.yaml").write_text("")
    write(contents(workloads()), tmp_path, is_overwriting=True)
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == first
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(ConfigurationError, match=r"holds mine\.yaml"):
        write(contents(workloads()), tmp_path, is_overwriting=True)


@pytest.mark.long
async def test_kustomize_builds_the_base_and_the_overlay(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, which has kustomize, is not installed")
    options = ("--image", "levelog:local", "--output", "made", "--operator-namespace", "levelog")
    ended = await Levelog(tmp_path).ends("manifests", WEBS_FILE, *options)
    assert ended.status == 0, ended
    built: dict[str, dict[tuple[str, str], Any]] = {}
    for part in ("base", "overlays/scaled"):
        command = [kubectl, "kustomize", str(tmp_path / "made" / part)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        text, _ = await process.communicate()
        assert process.returncode == 0
        built[part] = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    base, scaled = built.values()
    name = "levelog-webs-process"
    assert scaled.keys() - base.keys() == {("HorizontalPodAutoscaler", name)}
    assert base["Deployment", name]["spec"].pop("replicas") == 2
    assert base["Deployment", name] == scaled["Deployment", name]
