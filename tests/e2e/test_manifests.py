"""What `levelog manifests` and `levelog rbac` write, on a real API server, with an account for each process."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from levelog_base.errors import ConfigurationError
from levelog_cli.deployment.accounts import roles_of
from levelog_cli.loading import load_application
from levelog_cli.servers.clusters import known_cluster
from levelog_cli.settings import Settings, variable
from levelog_cli.wiring.roles import Role
from rigs.api import APPLY, Api
from rigs.controlplane import ControlPlane
from rigs.deployment import Deployment
from rigs.deployment import Role as Process
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


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEB, PODS = "/apis/example.com/v1/namespaces/default/webs", "/api/v1/namespaces/default/pods"
OWN_RIGHTS = {"selfsubjectaccessreviews", "selfsubjectreviews"}
"""What everybody may ask about oneself: the ClusterRole system:basic-user."""


def path_of(document: dict[str, Any]) -> str:
    kind, metadata = document["kind"], document["metadata"]
    root = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{inside}/{kind.lower()}s/{metadata['name']}"


async def install(api: Api, text: str) -> None:
    """Apply the documents, as `kubectl apply --server-side` does."""
    for document in filter(None, yaml.safe_load_all(text)):
        path = f"{path_of(document)}?fieldManager=somebody"
        status, answer = await api.request("PATCH", path, document, content_type=APPLY)
        assert status in (200, 201), answer


async def token_of(api: Api, account: str) -> str:
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    granted = await api.create(path, {"spec": {"expirationSeconds": 3600}})
    return str(granted["status"]["token"])


def printed(file: Path) -> str:
    return roles_of(load_application(Settings(), [file]), operator_namespace="default", namespaces=())


def rules(text: str, account: str) -> list[dict[str, Any]]:
    """The rules of an account, one verb each."""
    return [
        {**rule, "verbs": [verb]}
        for document in filter(None, yaml.safe_load_all(text))
        if document["kind"] in ("Role", "ClusterRole") and document["metadata"]["name"] == account
        for rule in document["rules"]
        for verb in rule["verbs"]
    ]


def granted(text: str, account: str) -> set[tuple[str, str]]:
    return {(rule["verbs"][0], rule["resources"][0]) for rule in rules(text, account)}


async def test_the_roles_that_are_printed_suffice_and_no_right_of_them_is_unused(
    private_control_plane: ControlPlane, nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    cluster, api, text = private_control_plane, private_control_plane.admin, printed(WEBS_FILE)
    await api.create(DEFINITIONS, yaml.safe_load((WEBS / "crd.yaml").read_text()))
    await install(api, text)
    tokens: dict[Process, str] = {
        "ingest": await token_of(api, "levelog-webs-ingest"),
        "actuate": await token_of(api, "levelog-webs-actuate"),
    }
    async with Deployment(tmp_path, api, nats_server, postgres_url, tokens=tokens) as deployment:
        await deployment.migrate()
        deployment.start()

        async def pods_are(*names: str) -> None:
            async def are() -> bool:
                deployment.check()
                _, listed = await api.request("GET", PODS)
                return sorted(pod["metadata"]["name"] for pod in listed["items"]) == sorted(names)

            await until(are, f"pods {', '.join(names)}", seconds=120)

        await api.apply(WEB, yaml.safe_load((WEBS / "shop.yaml").read_text()))
        await pods_are("shop-0", "shop-1", "shop-2")
        await api.patch(f"{WEB}/shop", {"spec": {"replicas": 1}})
        await pods_are("shop-0")
        await deployment.stop()
    # Lists come by watches where the server can do that; else they are asked for. A server-side apply of what is not
    # there is logged as a patch, and needs the right to create it nevertheless. A target is read where an answer leaves
    # a doubt.
    spare = {"ingest": {("list", "pods"), ("list", "webs")}, "actuate": {("create", "pods"), ("get", "pods")}}
    for process, unseen in spare.items():
        account = f"levelog-webs-{process}"
        requests = await cluster.audit.requests(user=f"system:serviceaccount:default:{account}")
        asked = {(request.verb, request.resource) for request in requests if request.resource}
        own = {(verb, resource) for verb, resource in asked if resource in OWN_RIGHTS}
        assert asked - own == granted(text, account) - unseen
        assert {request.code for request in requests if request.resource} <= {200, 201, 404}
    users = {request.user for request in await cluster.audit.requests()}
    assert not any("process" in user for user in users)


def each_left_out(account: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Verb and resource of each rule, and all others."""
    every = rules(printed(WEBS_FILE), account)
    for number, missing in enumerate(every):
        what = f"{missing['verbs'][0]} {missing['resources'][0]}"
        yield what, [rule for at, rule in enumerate(every) if at != number]


async def begin(cluster: ControlPlane, held: list[dict[str, Any]], role: Role) -> None:
    """What a process does at its start, by an account with these rules."""
    settings = Settings(kubeconfig=str(await cluster.kubeconfig_for(held)))
    program = load_application(settings, [WEBS_FILE]).program
    async with known_cluster(settings, program, frozenset({role})):
        pass


async def test_without_one_of_its_rights_ingest_names_it_and_does_not_start(control_plane: ControlPlane) -> None:
    for missing, held in each_left_out("levelog-webs-ingest"):
        with pytest.raises(ConfigurationError, match=rf" may not {missing}[. ].*`levelog rbac FILE`"):
            await begin(control_plane, held, Role.INGEST)


async def test_without_one_of_its_rights_the_actuator_names_it_when_it_starts(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for missing, held in each_left_out("levelog-webs-actuate"):
        if missing == "get namespaces":
            with pytest.raises(ConfigurationError, match="may not get namespaces kube-system"):
                await begin(control_plane, held, Role.ACTUATE)
            continue
        caplog.clear()
        await begin(control_plane, held, Role.ACTUATE)
        [line] = caplog.messages
        assert line.startswith("intents will fail: system:serviceaccount:default:user-")
        assert f" may not {missing} in all namespaces at https" in line
