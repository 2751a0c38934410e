"""The chart that `levelog manifests --format helm` writes says what the kustomize base says, and its values."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from levelog_cli.deployment import chart, kustomization
from levelog_cli.deployment.files import write
from levelog_cli.deployment.workloads import Workloads
from levelog_cli.loading import load_application
from levelog_cli.settings import Settings
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS_FILE, Levelog
from rigs.manifests import restricted_namespace, warnings_of
from rigs.run.examples import examples

NAMED_AFTER_CONTENT: Final = re.compile(r"-migrate-[0-9a-f]{10}$")
TEXTS: Final = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1) | st.just("{{ .Values.image }}")


class Chart:
    """A chart in a folder, and the program that reads it, as somebody runs it who has no settings."""

    def __init__(self, helm: Path, made: Workloads, folder: Path) -> None:
        write(chart.contents(made), folder / "chart", is_overwriting=False)
        self.folder = folder / "chart"
        self._helm = helm
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        self._env["HOME"] = str(folder)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [self._helm, *arguments]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=120)

    def rendered(self, inside: str, *options: str) -> dict[tuple[str, str, str], Any]:
        ended = self.run("template", "release", self.folder, "--include-crds", "--namespace", inside, *options)
        assert (ended.returncode, ended.stderr) == (0, "")
        return by_name(yaml.safe_load_all(ended.stdout))


def workloads(inside: str, *namespaces: str, file: Path = WEBS_FILE) -> Workloads:
    application = load_application(Settings(), [file])
    return Workloads(application=application, files=[file], image="levelog:local", inside=inside, namespaces=namespaces)


OPTIONAL: Final = ("envFrom", "imagePullSecrets", "nodeSelector", "tolerations")


def without_empty(made: Any) -> Any:
    """An object without the optional fields that a chart has empty, as the API does not keep them."""
    if isinstance(made, dict):
        return {key: without_empty(each) for key, each in made.items() if each or key not in OPTIONAL}
    return [without_empty(each) for each in made] if isinstance(made, list) else made


def by_name(objects: Iterator[Any]) -> dict[tuple[str, str, str], Any]:
    """The objects by kind, namespace and name; a name that follows the content of a Job without what does."""
    found: dict[tuple[str, str, str], Any] = {}
    for one in objects:
        if one is not None:
            one["metadata"]["name"] = name = NAMED_AFTER_CONTENT.sub("-migrate", one["metadata"]["name"])
            key = (one["kind"], one["metadata"].get("namespace", ""), name)
            assert key not in found
            found[key] = without_empty(one)
    return found


def base(made: Workloads) -> dict[tuple[str, str, str], Any]:
    files = {name: text for name, text in kustomization.contents(made).items() if name.startswith("base/")}
    del files["base/kustomization.yaml"]
    return by_name(one for text in files.values() for one in yaml.safe_load_all(text))


def job_of(objects: str) -> str:
    return str(next(one["metadata"]["name"] for one in yaml.safe_load_all(objects) if one and one["kind"] == "Job"))


async def test_no_image_a_format_that_is_none_and_a_namespace_of_a_chart_are_refused(tmp_path: Path) -> None:
    levelog, options = Levelog(tmp_path), ("--image", "levelog:local", "--output", "made", "--format")
    ended = await levelog.ends("manifests", WEBS_FILE, *options, "jsonnet")
    assert ended.status == 2
    assert "Invalid value for '--format'" in ended.stderr
    reason = await levelog.refused(
        "manifests", WEBS_FILE, *options, "helm", "--operator-namespace", "operators", status=2
    )
    assert reason == "--operator-namespace goes with --format kustomize: a chart runs in the namespace of its release"
    reason = await levelog.refused("manifests", WEBS_FILE, "--image", " ", "--output", "made", status=2)
    assert reason == "--image is empty: give the image that has levelog and the operators"
    assert not (tmp_path / "made").exists()


@pytest.mark.long
@settings(max_examples=examples(20), phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
@given(
    image=TEXTS,
    namespaces=st.lists(st.sampled_from(["shops", "sites", "o-*"]), unique=True),
    name=st.sampled_from(["webs", "webs {{ .Values.image }}", 'it\'s {{ "webs" }}']),
    comment=TEXTS | st.just('{{ fail "not a template" }} {{- end }}'),
)
def test_the_chart_renders_the_objects_of_the_base(
    helm: Path, tmp_path_factory: pytest.TempPathFactory, comment: str, name: str, **more: Any
) -> None:
    folder = tmp_path_factory.mktemp("chart")
    file = folder / "any_webs.py"
    file.write_text(WEBS_FILE.read_text().replace('Operator("webs")', f"Operator({name!r})  # {comment}"))
    made = msgspec.structs.replace(workloads("operators", file=file), **more)
    assert Chart(helm, made, folder).rendered("operators") == base(made)


@pytest.mark.long
def test_values_are_where_the_objects_need_them(helm: Path, tmp_path: Path) -> None:
    made = workloads("operators")
    given: dict[str, Any] = {
        "image": "registry.example.com/webs@sha256:" + "0" * 64,
        "replicas": {"process": 7},
        "resources": {"actuate": {"limits": {"memory": "1Gi"}}},
        "nats": {"secret": "bus", "keys": {"ingest": "url"}},
        "database": {"secret": "sql: 'quoted'", "keys": {"migrate": "owner"}},
        "redaction": {"secret": "vault", "key": "bytes"},
        "logLevel": "debug",
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "envFrom": [{"secretRef": {"name": "mail"}}],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "podLabels": {"team": "a"},
    }
    expected = base(msgspec.structs.replace(made, image=given["image"]))
    expected["Deployment", "operators", "levelog-webs-process"]["spec"]["replicas"] = 7
    for (kind, _, name), one in expected.items():
        if kind not in ("Deployment", "Job"):
            continue
        spec = one["spec"]["template"]["spec"]
        [container] = spec["containers"]
        one["spec"]["template"]["metadata"]["labels"] |= given["podLabels"]
        spec |= {field: given[field] for field in ("nodeSelector", "tolerations", "imagePullSecrets")}
        [level] = [each for each in container["env"] if each["name"] == "LEVELOG_LOG_LEVEL"]
        level["value"] = given["logLevel"]
        container["env"] += given["env"]
        container["envFrom"] = given["envFrom"]
        if name == "levelog-webs-actuate":
            container["resources"]["limits"]["memory"] = "1Gi"
        for each in container["env"]:
            if reference := each.get("valueFrom", {}).get("secretKeyRef"):
                server = "nats" if "nats" in reference["key"] else "database"
                reference["name"] = given[server]["secret"]
                reference["key"] = given[server]["keys"].get(container["name"], reference["key"])
        for volume in spec["volumes"]:
            if secret := volume.get("secret"):
                secret["secretName"] = "vault"
                secret["items"][0]["key"] = "bytes"
    (tmp_path / "given.json").write_text(json.dumps(given))
    assert Chart(helm, made, tmp_path).rendered("operators", "--values", str(tmp_path / "given.json")) == expected


@pytest.mark.long
def test_a_service_monitor_finds_the_pods_by_a_service(helm: Path, tmp_path: Path) -> None:
    options = ("--set", "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus")
    made = Chart(helm, workloads("operators"), tmp_path).rendered("operators", *options)
    service = made["Service", "operators", "levelog-webs-metrics"]
    monitor = made["ServiceMonitor", "operators", "levelog-webs-metrics"]
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    pods = made["Deployment", "operators", "levelog-webs-ingest"]["spec"]["template"]
    assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
    [endpoint], [port] = monitor["spec"]["endpoints"], pods["spec"]["containers"][0]["ports"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"] == port["name"]


@pytest.mark.long
def test_the_job_has_another_name_where_it_runs_something_else_and_only_there(helm: Path, tmp_path: Path) -> None:
    made = Chart(helm, workloads("operators"), tmp_path)

    def name(*options: str) -> str:
        return job_of(made.run("template", "release", made.folder, *options).stdout)

    assert name() == name("--set", "replicas.process=7") == name("--set", "resources.ingest.limits.memory=1Gi")
    assert len({name(), name("--set", "image=other"), name("--set", "database.secret=other")}) == 3


@pytest.mark.long
def test_helm_finds_nothing_to_mend_and_no_value_that_the_chart_does_not_know(helm: Path, tmp_path: Path) -> None:
    made = Chart(helm, workloads("operators"), tmp_path)
    ended = made.run("lint", "--strict", made.folder)
    assert (ended.returncode, "WARNING" in ended.stdout) == (0, False), ended
    wrong = {
        "replicas.proces=3": "/replicas",
        "replicas.process=-1": "/replicas/process",
        "replicas.process=many": "/replicas/process",
        "logLevel=loud": "/logLevel",
        "image=": "/image",
        "imagePullPolicy=Always": "imagePullPolicy",
        "nats.keys.migrate=url": "/nats/keys",
        "database.secret=null": "/database",
        "resources.process=null": "/resources",
    }
    for value, named in wrong.items():
        ended = made.run("template", "release", made.folder, "--set", value)
        assert ended.returncode == 1
        assert named in ended.stderr, ended


@pytest.mark.long
async def test_what_helm_installs_is_valid_and_as_restricted_as_pods_can_be(
    helm: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    api = control_plane.admin
    namespace = await restricted_namespace(api)
    made = Chart(helm, workloads("elsewhere"), tmp_path)
    assert await warnings_of(api, made.rendered(namespace).values()) == []
    server = ("--kubeconfig", str(control_plane.kubeconfig), "--namespace", namespace)
    # What this server, which tests share, has of definitions stays.
    installed = made.run("install", "webs", made.folder, "--skip-crds", *server)
    try:
        assert (installed.returncode, installed.stderr) == (0, "")
        assert "levelog-webs: actuate-database-url, migrate-database-url, process-database-url\n" in installed.stdout
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        [first] = (await api.request("GET", jobs))[1]["items"]
        upgraded = made.run("upgrade", "webs", made.folder, *server, "--set", "image=levelog:next")
        assert (upgraded.returncode, upgraded.stderr) == (0, "")
        others = [one for one in (await api.request("GET", jobs))[1]["items"] if not is_ending(one)]
        assert [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in others] == ["levelog:next"]
        assert others[0]["metadata"]["name"] != first["metadata"]["name"]
    finally:
        ended = made.run("uninstall", "webs", *server)
    assert ended.returncode == 0, ended
    _, left = await api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    assert [one for one in left["items"] if not is_ending(one)] == []


def is_ending(one: Mapping[str, Any]) -> bool:
    """Nothing collects what helm deletes in the foreground: there is no controller manager."""
    return "deletionTimestamp" in one["metadata"]
