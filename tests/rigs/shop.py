"""A Web whose image changes, so that each of its pods has to be deleted and created: two writes for each pod."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import yaml

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS

WEB: Final = "/apis/example.com/v1/namespaces/default/webs"
PODS: Final = "/api/v1/namespaces/default/pods"

Written = Counter[tuple[str, str]]
"""Effective writes of levelog's to pods, by verb and name."""


class Shop:
    """The Web `shop` of examples/webs, at one API server; `wanted` are the images of its pods as it wants them,
    `counted` what was written before the last change.

    `count` gives all writes so far: it is asked of the API's own log.
    """

    def __init__(self, api: Api, count: Callable[[], Awaitable[Written]], *, pods: int = 2) -> None:
        self.names = tuple(f"shop-{number}" for number in range(pods))
        self.wanted: dict[str, str] = {}
        self._api = api
        self._count = count
        self.counted = Written()

    @property
    def one_of_each(self) -> Written:
        """What one change of the image calls for."""
        return Written((verb, name) for verb in ("delete", "apply") for name in self.names)

    async def open(self) -> None:
        """Create the Web, and its CRD if it is not there."""
        definition = yaml.safe_load((WEBS / "crd.yaml").read_text())
        await self._api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self.wanted = {name: "image-0" for name in self.names}  # noqa: C420 - dict.fromkeys has no type for it
        spec = {"image": "image-0", "replicas": len(self.names)}
        await self._api.apply(
            WEB, {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "shop"}, "spec": spec}
        )

    async def change(self, image: str) -> None:
        """Ask for an image; what is written from now on counts for it."""
        self.counted = await self._count()
        self.wanted = {name: image for name in self.names}  # noqa: C420
        await self._api.patch(f"{WEB}/shop", {"spec": {"image": image}})

    async def is_as_wanted(self) -> bool:
        """Whether there are these pods and no others, with this image."""
        _, pods = await self._api.request("GET", PODS)
        return self.wanted == {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods["items"]}

    async def written(self) -> Written:
        """Since the last change."""
        return await self._count() - self.counted


def count_in_sandbox(sandbox: Sandbox) -> Callable[[], Awaitable[Written]]:
    """Effective writes as the sandbox knows them."""

    async def count() -> Written:
        writes = sandbox.requests.writes(user_agent="levelog")
        return Written((write.verb, write.name) for write in writes if write.resource == "pods")

    return count


def count_in_audit_log(plane: ControlPlane) -> Callable[[], Awaitable[Written]]:
    """Creations and deletions as the audit log tells them; an apply of what is there already is answered 200."""

    async def count() -> Written:
        writes = [
            write for write in await plane.audit.writes(resource="pods") if write.user_agent.startswith("levelog")
        ]
        assert {write.verb for write in writes} <= {"patch", "delete"}
        created = [("apply", write.name) for write in writes if write.verb == "patch" and write.code == 201]
        return Written([*created, *(("delete", write.name) for write in writes if write.verb == "delete")])

    return count
