"""A user who changes objects without HTTP: manifests in, objects out, every call in the request log."""

from collections.abc import Sequence
from typing import Any

from levelog_base.wire.projection import merge
from levelog_sandbox.api import refusals
from levelog_sandbox.api.urltargets import RequestTarget
from levelog_sandbox.fields.patches import json_patch
from levelog_sandbox.objects.cluster import Cluster
from levelog_sandbox.objects.deletion import DeleteOptions
from levelog_sandbox.objects.incoming import Options
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]


class User:
    """Direct calls under one user agent, which is the field manager too.

    `resource` is `plural` or `plural.group`, such as `pods` or `webs.example.com`. Every method raises `StatusError` as
    the API would answer.
    """

    def __init__(self, cluster: Cluster, user_agent: str) -> None:
        self._cluster = cluster
        self._agent = user_agent

    def create(self, manifest: Json) -> Json:
        """Create the object that a manifest describes."""
        at = self._target_of(manifest)
        options = Options(field_manager=self._agent)
        return self._write(
            at, "create", lambda: self._cluster.writes.create(at.resource, at.namespace, manifest, options)
        )

    def apply(self, manifest: Json, *, force: bool = True, field_manager: str = "") -> Json:
        """Server-side apply a manifest, forced unless said otherwise."""
        at = self._target_of(manifest)
        options = Options(field_manager=field_manager or self._agent, is_forced=force)
        return self._write(
            at, "apply", lambda: self._cluster.writes.apply(at.resource, at.namespace, at.name, manifest, options)
        )

    def replace(self, manifest: Json, *, subresource: str = "") -> Json:
        """Replace an object, or with `subresource="status"` its status."""
        at = self._target_of(manifest)._replace(subresource=subresource)
        options = Options(field_manager=self._agent, subresource=subresource)
        return self._write(
            at, "update", lambda: self._cluster.writes.replace(at.resource, at.namespace, at.name, manifest, options)
        )

    def patch(
        self,
        resource: str,
        name: str,
        patch: Json | Sequence[Json],
        *,
        namespace: str = "default",
        subresource: str = "",
    ) -> Json:
        """A merge patch when it is an object, a JSON patch when it is a list."""
        at = self._target(resource, namespace, name)._replace(subresource=subresource)
        options = Options(field_manager=self._agent, subresource=subresource)

        def change(live: Json) -> Any:
            return merge(live, patch) if isinstance(patch, dict) else json_patch(live, list(patch))

        return self._write(
            at, "patch", lambda: self._cluster.writes.patch(at.resource, at.namespace, at.name, change, options)
        )

    def delete(self, resource: str, name: str, *, namespace: str = "default", policy: str = "", uid: str = "") -> Json:
        """Delete an object; returns its last state, or the marked object while finalizers hold it."""
        at = self._target(resource, namespace, name)
        options = DeleteOptions(policy=policy, uid=uid)
        return self._write(
            at, "delete", lambda: self._cluster.deletion.delete(at.resource, at.namespace, at.name, options)
        )

    def get(self, resource: str, name: str, *, namespace: str = "default") -> Json:
        """The object as it is now; not logged."""
        at = self._target(resource, namespace, name)
        return self._cluster.writes.live(at.resource, at.namespace, at.name).body_as(at.resource)

    def list(self, resource: str, *, namespace: str = "") -> list[Json]:
        """Every object of a kind, in all namespaces when none is named."""
        found = self._cluster.registry.named(resource)
        collection = self._cluster.store.collection(found.storage)
        return [stored.body_as(found) for stored in collection.in_order() if namespace in {"", stored.namespace}]

    def _write(self, at: RequestTarget, verb: str, write: Any) -> Json:
        outcome = self._cluster.logged(at, verb, write, self._agent)
        return outcome.stored.body_as(at.resource)

    def _target(self, resource: str, namespace: str, name: str) -> RequestTarget:
        found = self._cluster.registry.named(resource)
        return RequestTarget(found, namespace if found.namespaced else "", name, "")

    def _target_of(self, manifest: Json) -> RequestTarget:
        found = self._cluster.registry.of_kind(manifest.get("apiVersion", ""), manifest.get("kind", ""))
        if found is None:
            raise refusals.no_such_kind(manifest.get("apiVersion", ""), manifest.get("kind", ""))
        about = manifest.get("metadata", {})
        return RequestTarget(found, self._namespace(found, about), about.get("name", ""), "")

    def _namespace(self, resource: ServedResource, about: Json) -> str:
        return about.get("namespace") or "default" if resource.namespaced else ""
