"""Manifests given to a real API server, as `kubectl apply` does it, or only tried by it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rigs.api import APPLY, Api

_POD_SECURITY: Final = "pod-security.kubernetes.io"


async def apply(api: Api, manifest: Mapping[str, Any], *, is_tried: bool = False) -> Any:
    """Apply a manifest, unknown and double fields refused, and return the object; tried, nothing is kept.

    Raises RuntimeError if it is refused.
    """
    metadata, kind = manifest["metadata"], manifest["kind"]
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    path = f"{_root(manifest)}{inside}/{_plural(kind)}/{metadata['name']}?{_options(is_tried=is_tried)}"
    status, answer = await api.request("PATCH", path, manifest, content_type=APPLY)
    if status not in {200, 201}:
        raise RuntimeError(f"{kind} {metadata['name']}: {status}: {answer.get('message')}")
    return answer


async def warnings_of(api: Api, manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a server warns of when it tries them, and their pods. Raises RuntimeError if one is refused."""
    asking = Api(api.url, ca_file=api.ca_file, token=api.token)
    for manifest in manifests:
        await apply(asking, manifest, is_tried=True)
        if template := manifest.get("spec", {}).get("template"):
            # The server makes no pods of these, and there are no accounts: nothing is kept.
            claimed = [each["metadata"]["name"] for each in manifest["spec"].get("volumeClaimTemplates", ())]
            volumes = [*template["spec"]["volumes"], *({"name": name, "emptyDir": {}} for name in claimed)]
            pod = {**template["spec"], "volumes": volumes, "serviceAccountName": "default"}
            metadata = {**template["metadata"], **{key: manifest["metadata"][key] for key in ("name", "namespace")}}
            await apply(asking, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}, is_tried=True)
    return asking.warnings


async def restricted_namespace(api: Api) -> str:
    """A new one that takes pods by the Pod Security Standard `restricted` alone, and warns of what makes others."""
    namespace = await api.create_namespace()
    labels = {f"{_POD_SECURITY}/enforce": "restricted", f"{_POD_SECURITY}/warn": "restricted"}
    wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await apply(api, wanted)
    return namespace


def _root(manifest: Mapping[str, Any]) -> str:
    version = manifest["apiVersion"]
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _plural(kind: str) -> str:
    """As the API has them, but for words that no manifest here has."""
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def _options(*, is_tried: bool) -> str:
    # Definitions of other tests on the same server have other managers.
    return "fieldManager=test&fieldValidation=Strict" + ("&dryRun=All&force=true" if is_tried else "")
