"""Each example by `levelog run` on a real API server, with the permissions that it needs and no others."""

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from aiohttp import web

from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog
from rigs.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Rule: TypeAlias = Mapping[str, Sequence[str]]


def rule(resources: Sequence[str], *verbs: str, group: str = "") -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


WHO_ARE_YOU = rule(["namespaces"], "get")


@asynccontextmanager
async def running(
    cluster: ControlPlane, name: str, folder: Path, *rules: Rule, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Levelog]:
    """`levelog run` of an example, stopped in order at the end."""
    levelog = Levelog(folder, await cluster.kubeconfig_for([WHO_ARE_YOU, *rules]))
    with levelog.start("run", EXAMPLES / name / f"{name}.py", env=env) as process:
        yield levelog
        assert await process.stops() == 0


async def define(api: Api, name: str) -> None:
    """Install the example's definition."""
    await api.create(DEFINITIONS, yaml.safe_load((EXAMPLES / name / "crd.yaml").read_text()))


def manifests(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / path).read_text()))


async def level(levelog: Levelog, view: str, parent: str, status: str) -> dict[str, Any]:
    """Wait until a level has a status."""

    async def has() -> dict[str, Any] | None:
        found = await levelog.levels("--view", view, parent)
        return next((one for one in found if one["status"] == status), None)

    found = await until(has, f"{view} of {parent} {status}", seconds=60, pause=0.25)
    assert found
    return found


async def test_guardrails_report_namespaces_and_write_only_where_a_label_asks(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    rules = (
        rule(["namespaces"], "list", "watch"),
        rule(["resourcequotas"], "list", "watch", "get", "create", "patch", "delete"),
        rule(["networkpolicies"], "list", "watch", group="networking.k8s.io"),
    )
    [asking] = manifests("guardrails/team-a.yaml")
    async with running(cluster, "guardrails", tmp_path, *rules) as levelog:
        await api.apply("/api/v1/namespaces", asking)
        await api.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
        await level(levelog, "quotas", "team-a", "in_sync")
        found = await level(levelog, "findings", "team-b", "drifting")
        assert found["drift"] == {"missing": ["NetworkPolicy", "ResourceQuota"]}
        await until(
            lambda: levelog.levels("--view", "findings", "team-a"),
            "a quota in team-a",
            accept=lambda levels: [each["drift"] for each in levels] == [{"missing": ["NetworkPolicy"]}],
            pause=0.25,
        )
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "default-deny"},
            "spec": {"podSelector": {}},
        }
        await api.apply("/apis/networking.k8s.io/v1/namespaces/team-a/networkpolicies", policy)
        await level(levelog, "findings", "team-a", "in_sync")
        _, quotas = await api.request("GET", "/api/v1/resourcequotas")
        assert [(one["metadata"]["namespace"], one["spec"]["hard"]["pods"]) for one in quotas["items"]] == [
            ("team-a", "10")
        ]
        unlabelled = {"metadata": {"labels": {"example.com/quota": None}}}
        await api.patch("/api/v1/namespaces/team-a", unlabelled)
        await api.shows("/api/v1/resourcequotas", lambda quotas: not quotas["items"])


async def test_a_project_is_a_tenancy_whose_token_comes_back_and_goes_after_its_last_backup(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    rbac, verbs = "rbac.authorization.k8s.io", ("list", "watch", "get", "create", "patch", "delete")
    rules = (
        rule(["namespaces", "resourcequotas", "secrets", "configmaps"], *verbs),
        rule(["rolebindings"], *verbs, group=rbac),
        {**rule(["clusterroles"], "bind", group=rbac), "resourceNames": ["edit"]},
        rule(["jobs"], "list", "watch", "get", "create", group="batch"),
        rule(["deployments"], "list", "watch", "get", "patch", group="apps"),
        rule(["projects"], "list", "watch", "get", "patch", group="example.com"),
        rule(["projects/status"], "patch", group="example.com"),
        rule(["events"], "get", "create", "patch", group="events.k8s.io"),
    )
    projects, secret = "/apis/example.com/v1/projects", "/api/v1/namespaces/atlas/secrets/token"
    await define(api, "projects")
    async with running(cluster, "projects", tmp_path, *rules) as levelog:
        await api.apply(projects, manifests("projects/atlas.yaml")[0])

        async def token(other_than: str = "") -> str:
            status, found = await api.request("GET", secret)
            text = found["data"]["token"] if status == 200 else other_than
            return text if text != other_than else ""

        first = await until(token, "a token", seconds=60, pause=0.25)
        await level(levelog, "tenancy", "atlas", "in_sync")
        await level(levelog, "projects_finalizer", "atlas", "in_sync")
        _, binding = await api.request("GET", f"/apis/{rbac}/v1/namespaces/atlas/rolebindings/members")
        assert [each["name"] for each in binding["subjects"]] == ["ann", "bob"]
        edited = "aHVudGVyMg=="
        await api.patch(secret, {"data": {"token": edited}})
        assert await until(lambda: token(edited), "the token that was there", seconds=60, pause=0.25) == first
        await api.request("DELETE", f"{projects}/atlas")
        job = "/apis/batch/v1/namespaces/atlas/jobs/last-backup"
        await api.shows(job, seconds=120)
        status, found = await api.request("GET", f"{projects}/atlas")
        assert (status, found["metadata"]["finalizers"]) == (200, ["levelog/projects"])
        await api.patch(f"{job}/status", {"status": {"succeeded": 1}})
        await api.lacks(f"{projects}/atlas")


@pytest.mark.long
async def test_the_inventory_is_read_by_sql(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    rules = (rule(["namespaces", "pods"], "list", "watch"),)
    async with running(cluster, "inventory", tmp_path, *rules) as levelog:
        for pod in manifests("inventory/pods.yaml"):
            await api.apply(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        await level(levelog, "unpinned", "kube-system", "drifting")
        query = "select key, count(*) from images where not value_is_pinned group by key order by key"
        used = [("coredns:1.12", 1), ("nginx:1.29", 2)]
        await until(lambda: levelog.rows(query) == used, "the images in use", seconds=60)
    written = [request for request in await cluster.audit.writes() if "levelog" in request.user_agent]
    assert {request.resource for request in written} == {"selfsubjectaccessreviews"}  # what may I list and watch?


@pytest.mark.long
async def test_a_preview_goes_at_its_end(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    previews = "/apis/example.com/v1/namespaces/default/previews"
    rules = (
        rule(["previews"], "list", "watch", "get", "delete", group="example.com"),
        rule(["previews/status"], "patch", group="example.com"),
    )
    await define(api, "previews")
    [preview] = manifests("previews/pr-7.yaml")
    async with running(cluster, "previews", tmp_path, *rules) as levelog:
        await api.apply(previews, preview)
        await level(levelog, "lives", "pr-7", "in_sync")
        _, shown = await api.request("GET", f"{previews}/pr-7")
        assert shown["status"]["expiresAt"] > shown["metadata"]["creationTimestamp"]
        await api.patch(f"{previews}/pr-7", {"spec": {"ttlSeconds": 5}})
        await api.lacks(f"{previews}/pr-7")


@pytest.mark.long
async def test_the_parts_of_a_site_follow_it(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    everything = ("list", "watch", "get", "create", "patch", "delete")
    rules = (
        rule(["sites"], "list", "watch", group="example.com"),
        rule(["configmaps", "services"], *everything),
        rule(["deployments"], *everything, group="apps"),
    )
    await define(api, "sites")
    [site] = manifests("sites/blog.yaml")
    sites = "/apis/example.com/v1/namespaces/default/sites"
    service = "/api/v1/namespaces/default/services/blog"
    deployment = "/apis/apps/v1/namespaces/default/deployments/blog"
    async with running(cluster, "sites", tmp_path, *rules) as levelog:
        await api.apply(sites, site)
        await level(levelog, "parts", "blog", "in_sync")
        _, made = await api.request("GET", deployment)
        assert made["spec"]["replicas"] == 2
        assert (await api.request("GET", service))[0] == 200

        await api.patch(deployment, {"spec": {"replicas": 5}})
        await api.shows(deployment, lambda found: found["spec"]["replicas"] == 2)
        await api.patch(f"{sites}/blog", {"spec": {"port": 0}})
        await api.lacks(service)
        await level(levelog, "parts", "blog", "in_sync")
    requests = await cluster.audit.writes()
    written = sorted((one.verb, one.resource) for one in requests if "levelog" in one.user_agent and one.name)
    assert written == [
        ("delete", "services"),
        *[("patch", "configmaps")],
        *[("patch", "deployments")] * 2,
        ("patch", "services"),
    ]


@pytest.mark.long
async def test_a_release_follows_a_branch(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    repository = tmp_path / "repository"
    repository.mkdir()
    rules = (
        rule(["releases"], "list", "watch", "get", group="example.com"),
        rule(["releases/status"], "patch", group="example.com"),
    )
    await define(api, "releases")
    [release] = manifests("releases/stable.yaml")
    releases = "/apis/example.com/v1/namespaces/default/releases"
    git(repository, "init", "--initial-branch", "main")
    first = commit(repository)

    async def shows(tip: str | None) -> None:
        await api.shows(f"{releases}/stable", lambda found: found.get("status", {}).get("commit") == tip)

    env = {"REPOSITORY": str(repository)}
    async with running(cluster, "releases", tmp_path, *rules, env=env) as levelog:
        await api.apply(releases, release)
        await shows(first)
        await shows(commit(repository))
        (repository / ".git").rename(tmp_path / "away")
        query = "select is_listed, is_stale, error like '%git%' from inputs where resource = 'branches.external'"
        await until(lambda: levelog.rows(query) == [(1, 1, 1)], "branches that are stale", seconds=60)
        await level(levelog, "followed", "stable", "in_sync")
        (tmp_path / "away").rename(repository / ".git")
        await shows(commit(repository))
    git(repository, "checkout", "--quiet", "-b", "other")
    git(repository, "branch", "--delete", "--force", "main")
    async with running(cluster, "releases", tmp_path, *rules, env=env):
        await shows(None)
    written = [one for one in await cluster.audit.writes() if "levelog" in one.user_agent and one.name]
    assert {(one.verb, one.resource) for one in written} == {("patch", "releases")}
    assert len(written) == 4


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    ran = subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def commit(folder: Path) -> str:
    """Commit on the branch that is checked out, and return which."""
    git(folder, "commit", "--allow-empty", "--message", "more")
    return git(folder, "rev-parse", "HEAD")


RENEWAL_SECONDS = 3


class Registrar:
    """A registrar at a port of this machine, which is busy at first; it holds addresses and gives tokens."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.keys: list[str] = []
        self.renewals: dict[str, float] = {}
        """When a token was asked for first, by key."""
        self.is_busy = True

    async def answer(self, request: web.Request) -> web.Response:
        if request.path.endswith("/token"):
            self.renewals.setdefault(request.headers["Idempotency-Key"], asyncio.get_running_loop().time())
            return web.Response()
        self.keys.append(request.headers["Idempotency-Key"])
        if self.is_busy:
            return web.Response(status=503, headers={"Retry-After": "1"})
        name = request.path.rpartition("/")[2]
        if request.method == "DELETE":
            del self.held[name]
        else:
            self.held[name] = (await request.json())["address"]
        return web.Response()


@pytest.mark.long  # its tokens are renewed every few seconds
async def test_domains_are_at_the_registrar_as_they_are_in_the_cluster_and_tokens_are_renewed_over_a_restart(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    collection = "/apis/example.com/v1/namespaces/default/domains"
    registrar = Registrar()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", registrar.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        env = {"REGISTRAR_URL": f"http://127.0.0.1:{runner.addresses[0][1]}", "RENEWAL_SECONDS": str(RENEWAL_SECONDS)}
        await define(api, "domains")
        readable = rule(["domains"], "list", "watch", group="example.com")

        async def renews(more: int) -> None:
            wanted = len(registrar.renewals) + more
            await until(lambda: len(registrar.renewals) >= wanted, "new tokens", seconds=60)

        async with running(cluster, "domains", tmp_path, readable, env=env):
            [shop] = manifests("domains/shop.yaml")
            await api.apply(collection, shop)
            await until(lambda: len(registrar.keys) > 1, "a second try", seconds=60)
            assert len(set(registrar.keys)) == 1, "the same request has the same key"
            registrar.is_busy = False

            async def holds(expected: dict[str, str]) -> None:
                await until(lambda: registrar.held == expected, f"the registrar to hold {expected}", seconds=60)

            await holds({"shop.example": "192.0.2.1"})
            moved = {"spec": {"address": "192.0.2.2"}}
            await api.patch(f"{collection}/shop.example", moved)
            await holds({"shop.example": "192.0.2.2"})
            await renews(2)
        async with running(cluster, "domains", tmp_path, readable, env=env):
            await renews(2)
            await api.request("DELETE", f"{collection}/shop.example")
            await holds({})
        assert all(later - earlier > RENEWAL_SECONDS / 2 for earlier, later in pairwise(registrar.renewals.values()))
    finally:
        await runner.cleanup()


class Farm:
    """A farm at a port of this machine, whose jobs are done once it is told; by the key that each was started with."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.paused: list[str] = []
        self.looks = 0
        self.is_done = False

    async def answer(self, request: web.Request) -> web.Response:
        _, _, job, *step = request.path.split("/")
        if request.method == "PUT":
            self.jobs.setdefault(job, (await request.json())["scene"])
        elif step == ["pause"]:
            self.paused.append(job)
        else:
            self.looks += 1
        state = "done" if self.is_done else "rendering"
        return web.json_response({"id": job, "state": state, "frames": self.looks, "message": ""})


@pytest.mark.long
async def test_a_render_is_followed_over_a_kill_until_the_farm_is_done_or_it_is_deleted(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    collection = "/apis/example.com/v1/namespaces/default/renders"
    farm = Farm()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", farm.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    rules = (
        rule(["renders"], "list", "watch", group="example.com"),
        rule(["renders/status"], "patch", group="example.com"),
    )

    async def shows(name: str, phase: str) -> None:
        await api.shows(f"{collection}/{name}", lambda found: found.get("status") == {"phase": phase})

    async def looks(more: int) -> None:
        wanted = farm.looks + more
        await until(lambda: farm.looks >= wanted, "looks at the jobs", seconds=60)

    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        env = {"FARM_URL": f"http://127.0.0.1:{runner.addresses[0][1]}", "FARM_POLL": "0.2"}
        await define(api, "renders")
        [film] = manifests("renders/film.yaml")
        levelog = Levelog(tmp_path, await cluster.kubeconfig_for([WHO_ARE_YOU, *rules]))
        with levelog.start("run", EXAMPLES / "renders/renders.py", env=env):
            await api.apply(collection, film)
            await looks(3)
        async with running(cluster, "renders", tmp_path, *rules, env=env):
            await looks(3)
            await api.apply(collection, film | {"metadata": {"name": "trailer"}, "spec": {"scene": "desert"}})
            await shows("film", "Rendering")
            await shows("trailer", "Rendering")
            await api.request("DELETE", f"{collection}/trailer")
            await until(lambda: len(farm.paused) == 1, "the job of what is deleted paused", seconds=60)
            farm.is_done = True
            await shows("film", "Done")
        assert sorted(farm.jobs.values()) == ["desert", "forest"], "each job is started once, over a kill too"
        assert farm.jobs[farm.paused[0]] == "desert"
    finally:
        await runner.cleanup()


@pytest.mark.long
async def test_a_kopf_file_keeps_databases_with_a_client_of_its_own(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    databases = "/apis/example.com/v1/namespaces/default/databases"
    core = "/api/v1/namespaces/default"
    rules = (
        rule(["databases"], "list", "watch", "get", "patch", group="example.com"),
        rule(["databases/status"], "patch", group="example.com"),
        rule(["pods"], "list", "watch"),
        rule(["persistentvolumeclaims"], "create", "patch"),
        rule(["configmaps"], "create", "delete"),
        rule(["events"], "create", "patch", group="events.k8s.io"),
    )
    await define(api, "databases")
    [orders] = manifests("databases/orders.yaml")
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
        "allowVolumeExpansion": True,
    }
    await api.apply("/apis/storage.k8s.io/v1/storageclasses", storage)

    async def names() -> set[str]:
        _, found = await api.request("GET", f"{core}/configmaps")
        return {each["metadata"]["name"] for each in found["items"]} - {"kube-root-ca.crt"}

    async def are(*expected: str) -> None:
        await until(names, f"the ConfigMaps {expected}", accept=lambda found: found == set(expected), seconds=60)

    async def change(change: dict[str, Any]) -> None:
        await api.patch(f"{databases}/orders", change)

    async with running(cluster, "databases", tmp_path, *rules) as levelog:
        await api.apply(databases, orders)
        await are("orders-ann", "orders-bob")
        metadata = {"name": "server-0", "labels": {"app": "database-server"}}
        containers = {"containers": [{"name": "server", "image": "server:1"}]}
        await api.apply(f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": containers})
        await are("orders-ann", "orders-bob", "orders-connection")
        status = {"phase": "Ready", "created": {"claim": "orders-data", "host": "server-0.default"}}
        await api.shows(f"{databases}/orders", lambda found: status.items() <= found.get("status", {}).items())
        await change({"spec": {"users": ["bob", "cid"]}})
        await are("orders-bob", "orders-cid", "orders-connection")
        claim = f"{core}/persistentvolumeclaims/orders-data"
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
        await api.patch(f"{claim}/status", bound)  # as its controller would
        await change({"spec": {"gigabytes": 5}})
        grown = await api.shows(claim, lambda found: found["spec"]["resources"]["requests"]["storage"] == "5Gi")
        assert [(each["kind"], each["name"]) for each in grown["metadata"]["ownerReferences"]] == [
            ("Database", "orders")
        ]
        await change({"metadata": {"annotations": {"example.com/keep": "ann"}}})
        await api.request("DELETE", f"{databases}/orders")
        query = "select count(*) from levels where reason like '%ann wants it kept%'"
        await until(lambda: levelog.rows(query) == [(1,)], "a call that waits to be tried again", seconds=60)
        await change({"metadata": {"annotations": {"example.com/keep": None}}})
        await api.lacks(f"{databases}/orders")
        assert "orders-last" in await names()
        _, events = await api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        assert {each["reason"] for each in events["items"]} >= {"Granted", "Revoked"}
