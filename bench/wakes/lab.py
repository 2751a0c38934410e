"""A control plane of one operator, whose audit log is kept: idle for ten minutes, then with changes."""

import asyncio
import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import yaml

from rigs.api import MERGE_PATCH
from rigs.binaries import find_binaries
from rigs.controlplane import ControlPlane
from rigs.processes import Process
from rigs.waiting import until

LOGS: Final = Path(__file__).parent / "logs"
SETTLING_SECONDS: Final = 30.0
"""After its start, an operator lists, creates and waits for its own writes: not what it does when idle."""

# Bodies of Secrets and tokens are nobody's business; those of CustomResourceDefinitions are megabytes.
_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: @left_out@
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
  resources:
  - {group: "", resources: ["secrets", "serviceaccounts/token"]}
  - {group: apiextensions.k8s.io}
  - {group: authentication.k8s.io}
- level: RequestResponse
  verbs: ["create", "update", "patch", "delete", "deletecollection"]
- level: RequestResponse
  verbs: ["get", "list"]
  resources: @interesting@
- level: Metadata
"""


class Lab:
    """kube-apiserver and etcd with a policy of bodies for writes, and for reads of `interesting` resources.

    `interesting` has the shape of an audit policy's `resources`; what the users in `left_out` ask is not kept.
    Used as `async with Lab(name, interesting) as lab`.
    """

    def __init__(
        self,
        name: str,
        interesting: Sequence[Mapping[str, Any]],
        *,
        left_out: Sequence[str] = ("system:apiserver",),
        idle_seconds: float = 600,
    ) -> None:
        self.name = name
        self.plane = ControlPlane(find_binaries(print))
        policy = _POLICY
        for mark, value in (("@interesting@", interesting), ("@left_out@", left_out)):
            policy = policy.replace(mark, msgspec.json.encode(value).decode())
        (self.plane.folder / "audit.yaml").write_text(policy)
        self.admin = self.plane.admin
        self.idle_seconds = idle_seconds
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        await self.plane.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            process.stop(seconds=5)
        self.plane.stop()

    def start(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """Start an operator, with a kubeconfig of the administrator unless `env` has another."""
        log = self.plane.folder / f"{Path(argv[0]).name}.log"
        kubeconfig = {"KUBECONFIG": str(self.plane.kubeconfig)}
        process = Process(argv, log, env=kubeconfig | dict(env or {}), folder=self.plane.folder)
        self._processes.append(process)
        return process

    async def idle(self) -> None:
        """Let everything settle, then keep the log of ten minutes in which nobody changes anything."""
        await asyncio.sleep(SETTLING_SECONDS)
        begun = self._size()
        await asyncio.sleep(self.idle_seconds)
        self._keep("idle", begun)

    async def change(self, *steps: Any, seconds: float, times: int = 4) -> None:
        """Await each step in turn, `times` over, and let `seconds` pass after each; the log is kept."""
        begun = self._size()
        for turn in range(times):
            for step in steps:
                await step(turn)
                await asyncio.sleep(seconds)
        self._keep("changes", begun)

    async def apply_file(self, path: Path) -> None:
        """Install the CustomResourceDefinitions of a file, without webhooks that convert."""
        for definition in _definitions(path):
            await self.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    async def create(self, collection: str, kind: str, name: str, spec: Mapping[str, Any]) -> Any:
        """Create an object; raises RuntimeError unless that is accepted."""
        parts = collection.split("/")
        version = "/".join(parts[2:4] if parts[1] == "apis" else parts[2:3])
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return await self.admin.create(collection, manifest)

    async def get(self, path: str) -> Any:
        """What is at a path of the API."""
        return (await self.admin.request("GET", path))[1]

    async def patch(self, path: str, patch: Mapping[str, Any]) -> Any:
        """Merge-patch; raises RuntimeError unless that is accepted."""
        status, answer = await self.admin.request("PATCH", path, patch, content_type=MERGE_PATCH)
        if status != 200:
            raise RuntimeError(f"PATCH {path}: {status}: {answer.get('message')}")
        return answer

    async def objects(self, path: str, count: int) -> list[Any]:
        """The objects of a collection, once there are so many."""

        async def found() -> list[Any]:
            items = (await self.get(path)).get("items") or []
            return items if len(items) >= count else []

        return await until(found, f"{count} objects at {path}", seconds=120, pause=0.5)

    async def make_ready(self, namespace: str, selector: str, count: int, *, is_ready: bool = True) -> list[str]:
        """Say of pods what a kubelet would: they run since long, and are ready or not; returns their names."""
        pods = await self.objects(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}", count)
        for pod in pods:
            await self.pod_status(namespace, pod, is_ready=is_ready)
        return [pod["metadata"]["name"] for pod in pods]

    async def pod_status(self, namespace: str, pod: Any, *, is_ready: bool, reason: str = "Waiting") -> None:
        """Say of one pod that its containers run and are ready, or wait for a reason."""
        state = {"running": {"startedAt": _LONG_AGO}} if is_ready else {"waiting": {"reason": reason}}
        answer = "True" if is_ready else "False"
        condition = {"status": answer, "lastTransitionTime": _LONG_AGO}
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": _LONG_AGO,
            "conditions": [{"type": kind, **condition} for kind in ("Ready", "ContainersReady", "PodScheduled")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": is_ready,
                    "restartCount": 0,
                    "state": state,
                }
                for container in pod["spec"]["containers"]
            ],
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        await self.patch(path, {"status": status})

    def _size(self) -> int:
        return self.plane.audit.path.stat().st_size

    def _keep(self, part: str, begun: int) -> None:
        with self.plane.audit.path.open("rb") as log:
            log.seek(begun)
            kept = log.read()
        path = LOGS / self.name / f"{part}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(kept[: kept.rfind(b"\n") + 1], mtime=0))
        lines = kept.count(b"\n")
        print(f"{path.relative_to(LOGS)}: {lines} lines, {path.stat().st_size:,} bytes", flush=True)


class _Manifests(yaml.SafeLoader):
    """YAML in which a lone `=` is a text, as in Kubernetes."""


def _definitions(path: Path) -> Iterator[dict[str, Any]]:
    for manifest in yaml.load_all(path.read_text(), _Manifests):
        if manifest and manifest.get("kind") == "CustomResourceDefinition":
            manifest["spec"].pop("conversion", None)
            yield manifest


def _text(loader: _Manifests, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Manifests.add_constructor("tag:yaml.org,2002:value", _text)

_LONG_AGO: Final = "2026-01-01T00:00:00Z"
