"""Plain requests to a Kubernetes API, for tests that set something up or look at what came of it."""

import json
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from rigs.askonce import ask_once
from rigs.kinds import definition
from rigs.waiting import until

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"


class Api:
    """One server and one bearer token (none if empty). Each request has a connection of its own: any loop may ask.

    `ca_file` holds the certificates to trust and need not exist yet; without one the server is asked by plain HTTP.
    `warnings` has what the server warned of in its answers.
    """

    def __init__(self, url: str, *, ca_file: Path | None = None, token: str = "") -> None:
        self.url = url
        self.ca_file = ca_file
        self.token = token
        self.warnings: list[str] = []
        self._tls: ssl.SSLContext | None = None

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """The status code and the decoded JSON answer; of a path that is not served yet, the text as message."""
        status, answer = await self._send(method, path, None if body is None else json.dumps(body), content_type)
        return status, json.loads(answer) if answer.startswith((b"{", b"[")) else {"message": answer.decode()}

    async def lines(self, path: str) -> tuple[int, list[Any]]:
        """The status code and the decoded lines of an answer that ends: a watch with `timeoutSeconds`."""
        status, answer = await self._send("GET", path, None, "application/json")
        return status, [json.loads(line) for line in answer.splitlines()]

    async def create(self, path: str, manifest: Mapping[str, Any]) -> Any:
        """POST a manifest to a collection and return the object; raises RuntimeError unless it was created."""
        status, answer = await self.request("POST", path, manifest)
        if status not in {200, 201}:
            raise RuntimeError(f"POST {path}: {status}: {answer.get('message')}")
        return answer

    async def patch(self, path: str, change: Mapping[str, Any]) -> None:
        """A merge patch; raises RuntimeError if it is refused."""
        status, answer = await self.request("PATCH", path, change, content_type=MERGE_PATCH)
        if status != 200:
            raise RuntimeError(f"PATCH {path}: {status}: {answer.get('message')}")

    async def shows(self, path: str, accept: Callable[[Any], object] = bool, *, seconds: float = 60.0) -> Any:
        """Wait until an object is there, and one that `accept` takes; returns it."""

        async def found() -> Any:
            status, body = await self.request("GET", path)
            return body if status == 200 and accept(body) else None

        return await until(found, f"{path} as it should be", seconds=seconds, pause=0.05)

    async def lacks(self, path: str) -> None:
        """Wait until there is no such object."""
        await until(lambda: self.request("GET", path), f"no {path}", accept=lambda answer: answer[0] == 404)

    async def apply(self, collection: str, manifest: Mapping[str, Any]) -> Any:
        """Apply a manifest, as soon as the API serves its resource, and return the object.

        To POST one takes two seconds where its definition is younger than that.
        """
        path = f"{collection}/{manifest['metadata']['name']}?fieldManager=somebody"
        found: Any = None

        async def is_applied() -> bool:
            nonlocal found
            status, found = await self.request("PATCH", path, manifest, content_type=APPLY)
            return status in (200, 201)

        await until(is_applied, path)
        return found

    async def create_namespace(self) -> str:
        """A namespace that no other test has."""
        name = f"t-{secrets.token_hex(4)}"
        await self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    async def create_crd(self, kind: str, *, group: str = "example.com", has_status: bool = True) -> None:
        """Make a custom resource that takes anything; returns once its collection can be listed."""
        manifest = definition(kind, group=group, has_status=has_status)
        plural = manifest["spec"]["names"]["plural"]
        await self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest)

        async def is_served() -> bool:
            return (await self._send("GET", f"/apis/{group}/v1/{plural}", None, "application/json"))[0] == 200

        await until(is_served, f"the API of {plural}.{group}")

    async def create_account(self, rules: Sequence[Mapping[str, Sequence[str]]]) -> tuple[str, str]:
        """Name and token of a new ServiceAccount that may, in the whole cluster, do what the rules say.

        Rules are those of a ClusterRole: `{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`. They are in
        force when this returns.
        """
        name = f"user-{secrets.token_hex(4)}"
        accounts, rbac = "/api/v1/namespaces/default/serviceaccounts", "/apis/rbac.authorization.k8s.io/v1"
        await self.create(accounts, {"metadata": {"name": name}})
        await self.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        await self.create(
            f"{rbac}/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
            },
        )
        granted = await self.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 86_400}})
        account = Api(self.url, ca_file=self.ca_file, token=str(granted["status"]["token"]))
        reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

        async def is_in_force() -> bool:
            _, reviewed = await account.request("POST", reviews, {"spec": {"namespace": "default"}})
            status = reviewed.get("status", {})
            held = [*status.get("resourceRules", ()), *status.get("nonResourceRules", ())]
            return all(any(_covers(one, rule) for one in held) for rule in rules)

        await until(is_in_force, f"the rules of {name}")
        return name, account.token

    async def is_ok(self, path: str) -> bool:
        """Whether a server that is perhaps still starting answers 200."""
        try:
            status, _ = await self._send("GET", path, None, "application/json")
        except (aiohttp.ClientConnectionError, TimeoutError, FileNotFoundError, ssl.SSLError):
            # The certificate is perhaps not written yet, or only half of it.
            return False
        return status == 200

    async def _send(self, method: str, path: str, body: str | None, content_type: str) -> tuple[int, bytes]:
        headers = {"Content-Type": content_type}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self._tls is None and self.ca_file is not None:
            self._tls = ssl.create_default_context(cafile=str(self.ca_file))
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), middlewares=[ask_once]) as session,
            session.request(method, self.url + path, data=body, headers=headers, ssl=self._tls or True) as answer,
        ):
            self.warnings += answer.headers.getall("Warning", [])
            return answer.status, await answer.read()


def _covers(held: Mapping[str, Sequence[str]], wanted: Mapping[str, Sequence[str]]) -> bool:
    return all(set(values) <= set(held.get(key, ())) for key, values in wanted.items())
