"""A real etcd and kube-apiserver of one's own, in a folder and on free ports."""

import base64
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from rigs.api import Api
from rigs.audit import POLICY, AuditLog
from rigs.binaries import Binaries
from rigs.kubeconfig import write_kubeconfig
from rigs.ports import free_port
from rigs.processes import Process
from rigs.server import Server
from rigs.waiting import until

START_SECONDS = 120.0  # about 3 s on an idle machine; the rest is for machines that run everything at once
_LITTLE_COLLECTING: Final = {"GOGC": "800"}  # a start takes a quarter less of processor time, and 80 MB more
_OWN_NAMESPACES: Final = {"default", "kube-node-lease", "kube-public", "kube-system"}
_OWN_KEYS: Final = ("/registry/leases/", "/registry/masterleases/", "/registry/ranges/")
"""Of what the server writes for itself at any time."""


class ControlPlane(Server):
    """etcd and kube-apiserver; with `start_controller_manager()` the built-in controllers too.

    Limits: no scheduler and no kubelet, so pods stay Pending, and need no ServiceAccount; without controller manager no
    namespace ends its deletion and no garbage is collected. etcd syncs nothing to disk: what it holds survives a killed
    server, not a crash of the machine. Everything is killed when this process ends.

    `url`, `ca_file`, `admin_token` and `kubeconfig` (user admin, group system:masters) do not change over restarts.
    With `watch_cache=False` each watch and list reads etcd: there are no streaming lists, and compaction alone makes
    an old watch fail. With `is_measured` nothing is audited, requests have priorities, and memory is collected as
    often as elsewhere; without, a start takes a quarter less of processor time.
    """

    def __init__(self, binaries: Binaries, *, watch_cache: bool = True, is_measured: bool = False) -> None:
        self.binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="levelog-controlplane-"))
        self._port, self._etcd_port = free_port(), free_port()
        self.etcd_url = f"http://127.0.0.1:{self._etcd_port}"
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca_file = self.folder / "apiserver" / "apiserver.crt"
        self.admin_token = secrets.token_hex(16)
        self.audit = AuditLog(self.folder / "audit.log")
        self._watch_cache, self._is_measured = watch_cache, is_measured
        self._first_keys: frozenset[str] | None = None
        self.admin = Api(self.url, ca_file=self.ca_file, token=self.admin_token)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        (self.folder / "audit.yaml").write_text(POLICY)
        self.kubeconfig = self._write_kubeconfig("admin", self.admin_token)
        self.etcd: Process | None = None
        self.kube_apiserver: Process | None = None
        self.kube_controller_manager: Process | None = None

    async def start(self) -> None:
        """Start what does not run and wait until the API server is ready. Raises ProcessEnded, TimeoutError."""
        if self.etcd is None or not self.etcd.is_running:
            self.etcd = self._start_etcd()
        if self.kube_apiserver is None or not self.kube_apiserver.is_running:
            self.kube_apiserver = self._start_kube_apiserver()
        ready = f"an API server that is ready at {self.url}"
        await until(self._is_ready, ready, seconds=START_SECONDS, pause=0.1)  # each question is work for it, too

    def kill(self) -> None:
        """SIGKILL the API server; its data stay in etcd."""
        if self.kube_apiserver is not None:
            self.kube_apiserver.kill()
        self.audit.forget_open()

    async def restart(self) -> None:
        """Kill the API server and start it again, on the same port and data, with an empty watch cache."""
        self.kill()
        await self.start()

    def stop(self) -> None:
        """Kill everything and remove the folder."""
        for process in (self.kube_controller_manager, self.kube_apiserver, self.etcd):
            if process is not None:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def compact(self) -> int:
        """Make etcd forget all history; return the revision, also the resourceVersion, of now.

        What starts at a resourceVersion of before (a watch, a list, the next page of a list) is answered 410: without a
        watch cache at once, else after the API server's next start, as it answers from memory until then. Watches that
        run go on.
        """
        # A watch from one revision before the compacted one misses nothing and is served: move on by two.
        for _ in range(2):
            await self._ask_etcd("/v3/kv/put", {"key": _encoded("compacted")})
        now = int((await self._ask_etcd("/v3/maintenance/status", {}))["header"]["revision"])
        await self._ask_etcd("/v3/kv/compaction", {"revision": str(now), "physical": True})
        return now

    async def empty(self) -> None:
        """Remove what was made since this was called first, whatever finalizers it has, and forget what was asked.

        Objects that the server made for itself stay as they are, changed or not.
        """
        await self.start()
        await until(self._has_own_namespaces, "the namespaces of the API server itself")
        keys = await self._keys()
        if self._first_keys is None:
            self._first_keys = keys
        made = [key for key in keys - self._first_keys if not key.startswith(_OWN_KEYS)]
        removals = [{"requestDeleteRange": {"key": _encoded(key)}} for key in made]
        for first in range(0, len(removals), 100):  # etcd takes 128 at once
            await self._ask_etcd("/v3/kv/txn", {"success": removals[first : first + 100]})
        await until(self._is_bare, "an API server that serves its own kinds and namespaces alone")
        self.audit.begin_anew()

    async def expire_history(self) -> int:
        """Compact and restart, so that whatever watches from before now is answered 410; return the revision of now."""
        now = await self.compact()
        await self.restart()
        return now

    async def snapshot(self) -> Path:
        """Copy etcd's data, while it is stopped for a moment; a folder for `restore`."""
        if self.etcd is not None:
            self.etcd.kill()
        folder = self.folder / "snapshot"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "etcd", folder)
        await self.start()
        return folder

    async def restore(self, snapshot: Path) -> None:
        """Begin again where a snapshot was made: what was written since then was never there, versions are lower."""
        self.kill()
        if self.etcd is not None:
            self.etcd.kill()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(snapshot, self.folder / "etcd")
        await self.start()

    async def start_controller_manager(self, controllers: Sequence[str] = ("*",)) -> None:
        """Start kube-controller-manager and wait until it is healthy. Raises RuntimeError where there is none."""
        program = self.binaries.kube_controller_manager
        if program is None:
            raise RuntimeError(f"no kube-controller-manager beside {self.binaries.kube_apiserver}")
        port, certificates = free_port(), self.folder / "controller-manager"
        self.kube_controller_manager = manager = Process(
            [
                program,
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={','.join(controllers)}",
                "--leader-elect=false",
                "--use-service-account-credentials=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={certificates}",
            ],
            self.folder / "kube-controller-manager.log",
        )
        manager_api = Api(f"https://127.0.0.1:{port}", ca_file=certificates / "kube-controller-manager.crt")

        async def is_healthy() -> bool:
            manager.check()
            return await manager_api.is_ok("/healthz")

        await until(is_healthy, "a kube-controller-manager that is healthy", seconds=START_SECONDS)

    async def kubeconfig_for(self, rules: Sequence[Mapping[str, Sequence[str]]]) -> Path:
        """A kubeconfig of a new account with these rights and no other: see `Api.create_account`."""
        name, token = await self.admin.create_account(rules)
        return self._write_kubeconfig(name, token)

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        path = self.folder / f"{user}.kubeconfig"
        return write_kubeconfig(path, url=self.url, ca_file=self.ca_file, user=user, token=token)

    def _start_etcd(self) -> Process:
        return Process(
            [
                self.binaries.etcd,
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self.etcd_url}",
                f"--advertise-client-urls={self.etcd_url}",
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            self.folder / "etcd.log",
            env={} if self._is_measured else _LITTLE_COLLECTING,
        )

    def _start_kube_apiserver(self) -> Process:
        certificates = self.ca_file.parent
        audit = (
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self.audit.path}",
            "--audit-log-maxsize=10000",  # megabytes: never rotate
        )
        return Process(
            [
                self.binaries.kube_apiserver,
                f"--etcd-servers={self.etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self._port}",
                # It signs a certificate for itself here, and keeps it; the same key signs ServiceAccount tokens.
                f"--cert-dir={certificates}",
                f"--service-account-key-file={certificates / 'apiserver.key'}",
                f"--service-account-signing-key-file={certificates / 'apiserver.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--watch-cache={str(self._watch_cache).lower()}",
                *(() if self._is_measured else (*audit, "--enable-priority-and-fairness=false")),
            ],
            self.folder / "kube-apiserver.log",
            env={} if self._is_measured else _LITTLE_COLLECTING,
        )

    async def _is_ready(self) -> bool:
        for process in (self.etcd, self.kube_apiserver):
            if process is not None:
                process.check()
        return await self.admin.is_ok("/readyz")

    async def _has_own_namespaces(self) -> bool:
        return await self._namespaces() >= _OWN_NAMESPACES

    async def _is_bare(self) -> bool:
        """Whether the server has noticed what was removed from etcd."""
        _, served = await self.admin.request("GET", "/apis")
        is_own = all("." not in group["name"] or group["name"].endswith(".k8s.io") for group in served["groups"])
        return is_own and await self._namespaces() == _OWN_NAMESPACES

    async def _namespaces(self) -> set[str]:
        _, listed = await self.admin.request("GET", "/api/v1/namespaces?resourceVersion=0")
        return {namespace["metadata"]["name"] for namespace in listed["items"]}

    async def _keys(self) -> frozenset[str]:
        every = {"key": _encoded("/registry/"), "range_end": _encoded("/registry0"), "keys_only": True}
        found = await self._ask_etcd("/v3/kv/range", every)
        return frozenset(base64.b64decode(each["key"]).decode() for each in found["kvs"])

    async def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(self.etcd_url + path, json=body) as answer,
        ):
            return await answer.json()


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
