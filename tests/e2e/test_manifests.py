"""What `levelog manifests` writes, applied to a real API server, and its processes started as its pods would."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from levelog_cli.settings import variable
from rigs.controlplane import ControlPlane
from rigs.kubeconfig import write_kubeconfig
from rigs.levelog import WEBS, WEBS_FILE, Levelog
from rigs.manifests import apply
from rigs.nats import NatsServer
from rigs.postgres import plain
from rigs.waiting import until

OPTIONS = ("--image", "levelog:local", "--output", "made", "--operator-namespace", "default")
NAMESPACE = "/api/v1/namespaces/default"
KEY_FILE = Path(__file__).parents[1] / "rigs/redaction.key"


@pytest.mark.long
async def test_the_processes_of_the_manifests_keep_the_pods_of_a_web(
    private_control_plane: ControlPlane, nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    cluster, api, levelog = private_control_plane, private_control_plane.admin, Levelog(tmp_path)
    sql = plain(postgres_url)
    written = await levelog.ends("manifests", WEBS_FILE, *OPTIONS)
    assert written.status == 0, written
    pods: dict[str, dict[str, Any]] = {}
    for file in sorted((tmp_path / "made/base").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one is None or one["kind"] == "Kustomization":
                continue
            answer = await apply(api, one)
            if one["kind"] in ("Deployment", "Job"):
                pods[answer["spec"]["template"]["metadata"]["labels"]["process"]] = answer["spec"]["template"]["spec"]

    def arguments(process: str) -> list[str]:
        [container] = pods[process]["containers"]
        return [text.replace("/operators", str(WEBS)) for text in container["args"]]

    async def environment(process: str) -> dict[str, str]:
        [container] = pods[process]["containers"]
        values = {each["name"]: each.get("value", "") for each in container["env"]}
        for each in container["env"]:
            if key := each.get("valueFrom", {}).get("secretKeyRef", {}).get("key"):
                values[each["name"]] = sql if "database" in key else nats_server.url
        if variable("listen") in values:
            values |= {variable("listen"): "127.0.0.1:0", variable("redaction_key_file"): str(KEY_FILE)}
        if pods[process]["automountServiceAccountToken"]:
            account = pods[process]["serviceAccountName"]
            granted = await api.create(f"{NAMESPACE}/serviceaccounts/{account}/token", {"spec": {}})
            token = granted["status"]["token"]
            file = tmp_path / f"{process}.kubeconfig"
            values["KUBECONFIG"] = str(
                write_kubeconfig(file, url=cluster.url, ca_file=cluster.ca_file, user=account, token=token)
            )
        return values

    migrated = await levelog.ends(*arguments("migrate"), env=await environment("migrate"))
    assert migrated.status == 0, migrated
    processes = ("ingest", "process", "actuate")
    running = [levelog.start(*arguments(each), env=await environment(each)) for each in processes]
    try:
        shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
        await api.apply("/apis/example.com/v1/namespaces/default/webs", shop)

        async def are_made() -> bool:
            for each in running:
                each.check()
            _, listed = await api.request("GET", f"{NAMESPACE}/pods")
            return [pod["metadata"]["name"] for pod in listed["items"]] == ["shop-0", "shop-1", "shop-2"]

        await until(are_made, "the pods of the Web", seconds=120)
        assert [await each.stops() for each in running] == [0, 0, 0]
    finally:
        for each in running:
            each.kill()


async def test_a_single_pod_goes_on_where_the_last_one_ended_and_begins_anew_without_its_volume(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api, levelog = private_control_plane, private_control_plane.admin, Levelog(tmp_path)
    del levelog.env["LEVELOG_REDACTION_KEY_FILE"]
    assert (await levelog.ends("manifests", WEBS_FILE, "--single", *OPTIONS)).status == 0
    made = [
        one
        for file in ("definitions", "rbac", "operators", "run", "networkpolicies")
        for one in yaml.safe_load_all((tmp_path / f"made/base/{file}.yaml").read_text())
        if one
    ]
    applied = {one["kind"]: await apply(api, one) for one in made}
    pod = applied["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    account = pod["serviceAccountName"]
    token = (await api.create(f"{NAMESPACE}/serviceaccounts/{account}/token", {"spec": {}}))["status"]["token"]
    file = write_kubeconfig(
        tmp_path / "run.kubeconfig", url=cluster.url, ca_file=cluster.ca_file, user=account, token=token
    )
    volume = tmp_path / "volume"
    env = {each["name"]: each["value"].replace("/data", str(volume)) for each in container["env"]}
    env |= {variable("listen"): "127.0.0.1:0", "KUBECONFIG": str(file)}
    levelog.data = Path(env[variable("data_dir")])
    levelog.env[variable("data_dir")] = str(levelog.data)
    arguments = [text.replace("/operators", str(WEBS)) for text in container["args"]]

    async def writes() -> list[str]:
        requests = await cluster.audit.writes(resource="pods")
        return [each.name for each in requests if "levelog" in each.user_agent]

    await api.apply("/apis/example.com/v1/namespaces/default/webs", yaml.safe_load((WEBS / "shop.yaml").read_text()))
    running = levelog.start(*arguments, env=env)
    try:
        await levelog.in_sync()
        assert sorted(await writes()) == ["shop-0", "shop-1", "shop-2"]
        running.kill()
        await api.request("DELETE", f"{NAMESPACE}/pods/shop-1", {"gracePeriodSeconds": 0})

        running = levelog.start(*arguments, env=env)
        await levelog.in_sync(2)
        assert (await writes())[3:] == ["shop-1"]
        running.kill()
        shutil.rmtree(volume)
        await api.request("DELETE", f"{NAMESPACE}/pods/shop-2", {"gracePeriodSeconds": 0})

        running = levelog.start(*arguments, env=env)
        await levelog.in_sync()
        assert (await writes())[4:] == ["shop-2"]
        assert await running.stops() == 0
    finally:
        running.kill()
