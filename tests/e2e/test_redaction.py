"""Canaries in all places where a secret value can be, looked for in all that levelog leaves behind."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rigs.canaries import found_in, found_in_files
from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog, Running
from rigs.nats import NatsServer
from rigs.postgres import plain
from rigs.vaults import NAMES, RULES, VAULTS_FILE, pod
from rigs.waiting import until

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CORE = "/api/v1/namespaces/default"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
ACCESS = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets", "pods", "configmaps", "services"], "verbs": VERBS},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": VERBS},
    {"apiGroups": ["example.com"], "resources": ["vaults"], "verbs": VERBS},
]


class Canaries:
    """One value for each place, and objects of users that hold some of them."""

    def __init__(self) -> None:
        self.values = {name: f"Canary_{name}_{secrets.token_hex(8)}" for name in NAMES}
        self.environment = {f"CANARY_{name}": value for name, value in self.values.items()}

    async def place(self, cluster: ControlPlane) -> None:
        values, api = self.values, cluster.admin
        await api.create_crd("Vault")
        await _deny(cluster, values)
        await api.create(f"{CORE}/secrets", {"metadata": {"name": "users"}, "stringData": {"a": values["SECRET"]}})
        await api.create(f"{CORE}/pods", pod("users", values["VARIABLE"]))
        annotations = {"vault.example.com/token": values["ANNOTATION"], LAST_APPLIED: str({"a": values["SECRET"]})}
        await api.create(f"{CORE}/configmaps", {"metadata": {"name": "users", "annotations": annotations}})
        vault = {"apiVersion": "example.com/v1", "kind": "Vault", "metadata": {"name": "users"}}
        path = "/apis/example.com/v1/namespaces/default/vaults"
        await api.apply(path, {**vault, "spec": {"password": values["FIELD"]}})


async def _deny(cluster: ControlPlane, values: dict[str, str]) -> None:
    """Have a policy in force that refuses some objects, and says why with their content."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets", "pods"]}
    quoted = "has(object.data) ? string(object.data.token) : object.spec.containers[0].env[0].value"
    policy = {
        "metadata": {"name": "denies"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "denied", "expression": 'object.metadata.name == "denied"'}],
            "validations": [{"expression": "false", "messageExpression": f'"may not hold " + ({quoted})'}],
        },
    }
    binding = {"metadata": {"name": "denies"}, "spec": {"policyName": "denies", "validationActions": ["Deny"]}}
    api = cluster.admin
    await api.create(f"{ADMISSION}/validatingadmissionpolicies", policy)
    await api.create(f"{ADMISSION}/validatingadmissionpolicybindings", binding)

    async def denies() -> bool:
        status, answer = await api.request("POST", f"{CORE}/pods?dryRun=All", pod("denied", values["DENIED_VARIABLE"]))
        return status == 422 and values["DENIED_VARIABLE"] in answer["message"]

    await until(denies, "a policy that is in force")


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@asynccontextmanager
async def running(
    cluster: ControlPlane, folder: Path, canaries: Canaries, *options: str, **environment: str
) -> AsyncGenerator[tuple[Levelog, Running]]:
    """The operator, once all its levels are what they come to."""
    levelog = Levelog(folder, await cluster.kubeconfig_for(ACCESS))
    levelog.env |= canaries.environment | environment

    async def is_done() -> bool:
        process.check()
        statuses = {level["view"]: level["status"] for level in await levelog.levels()}
        is_told = "source vaults/poll failed" in process.log.read_text()
        return is_told and statuses == {
            "vaults/stored": "in_sync",
            "vaults/failing": "failed",
            "vaults/refused": "failed",
        }

    with levelog.start("run", VAULTS_FILE, "--log-level", "debug", *options) as process:
        await until(is_done, "levels that are what they come to", seconds=120, pause=0.25)
        shown = await levelog.ends("levels", "--json")
        (folder / "levels.json").write_text(shown.stdout)
        exported = await levelog.ends("export", folder / "bundle.jsonl")
        assert exported.status == 0, exported.stderr
        yield levelog, process
        assert await process.stops() == 0


@pytest.mark.long
async def test_no_secret_value_is_left_in_files_tables_logs_exports_or_what_commands_print(
    private_control_plane: ControlPlane, nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    canaries = Canaries()
    await canaries.place(private_control_plane)
    values = set(canaries.values.values())
    async with running(private_control_plane, new(tmp_path / "one"), canaries, "--redact", RULES) as (levelog, _):
        assert list(levelog.data.rglob("*.blk")), "the log is in files"
        assert list(levelog.data.glob("levelog.db*"))
        assert found_in_files(tmp_path, values) == {}
    assert found_in_files(tmp_path, values) == {}
    url = plain(postgres_url)
    shared = {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": url, "LEVELOG_REDACT": RULES}
    (migrated,) = [await Levelog(tmp_path).ends("migrate", env=shared)]
    assert migrated.status == 0, migrated
    async with running(private_control_plane, new(tmp_path / "two"), canaries, **shared):
        pass
    dump = await _dump(url)
    assert b"hmac-sha256:" in dump
    assert b"[redacted]" in dump
    assert found_in(dump, values) == set()
    assert found_in_files(nats_server.folder, values) == {}
    assert found_in_files(tmp_path, values) == {}


@pytest.mark.long
async def test_with_redaction_off_the_same_search_finds_every_value(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    canaries = Canaries()
    await canaries.place(private_control_plane)
    options = ("--redact", RULES, "--redaction", "off")
    async with running(private_control_plane, new(tmp_path / "one"), canaries, *options) as (levelog, process):
        found = found_in_files(tmp_path, canaries.values.values())
        in_log_and_tables = {path: values for path, values in found.items() if str(levelog.data) in path}
        assert set().union(*in_log_and_tables.values()) == set(canaries.values.values())
        assert found[str(tmp_path / "one/bundle.jsonl")]
        in_logs = found[str(process.log)]
        quoted = ("SECRET", "FIELD", "INVALID", "DENIED_SECRET", "DENIED_VARIABLE", "CALLED", "POLLED")
        assert in_logs >= {canaries.values[name] for name in quoted}


async def _dump(url: str) -> bytes:
    """Every row of every table."""
    connection: Any = await asyncpg.connect(url, timeout=60)
    try:
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await connection.fetch(f'SELECT t::text FROM "{name}" t') for (name,) in names]
    finally:
        await connection.close()
    return "\n".join(row[0] for table in rows for row in table).encode()
