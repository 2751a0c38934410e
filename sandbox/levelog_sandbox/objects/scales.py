"""The scale subresource: a Scale object that reads and writes the replicas of its object."""

from collections.abc import Callable
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.objects.incoming import Options, applied, incoming, misnamed, unfit_patch
from levelog_sandbox.objects.metadata import unsaved
from levelog_sandbox.objects.revisions import Stored
from levelog_sandbox.objects.verbs import Outcome, Writes
from levelog_sandbox.schemas.registry import ServedResource
from levelog_sandbox.schemas.replicas import ScalePaths

Json = dict[str, Any]

SHOWN: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scales:
    """Reads and writes `/scale`; `kind` is that of the scales."""

    def __init__(self, writes: Writes, kind: ServedResource) -> None:
        self._writes = writes
        self.kind = kind

    def get(self, resource: ServedResource, namespace: str, name: str) -> Stored:
        """The scale of an object. Raises `StatusError` 404, 500 for a custom resource that says no replicas."""
        live = self._writes.live(resource, namespace, name)
        if resource.is_custom and _paths(resource).replicas(live.body) is None:
            path = ".".join(_paths(resource).wanted)
            raise refusals.internal(f'the spec replicas field ".{path}" does not exist')
        return unsaved(scale_of(resource, live.body))

    def replace(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Scale an object as the body says. Raises `StatusError` 400, 404, 409, 422."""
        return self._write(resource, namespace, name, lambda _: body, options)

    def patch(
        self, resource: ServedResource, namespace: str, name: str, change: Callable[[Json], Any], options: Options
    ) -> Outcome:
        """Scale an object as `change` makes of its scale. Raises `StatusError` 400, 404, 409, 422."""

        def changed(scale: Json) -> Any:
            made = change(scale)
            if wrong := unfit_patch(self.kind, made, options):
                raise wrong
            return made

        return self._write(resource, namespace, name, changed, options)

    def apply(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Server-side apply of a scale: its manager owns the replicas. Raises `StatusError` 400, 404, 409, 422, 500."""
        said = applied(self.kind, namespace, name, body, "")
        if resource.is_custom:
            # It is what kube-apiserver 1.36 says, whatever is applied.
            version = f"{self.kind.api_version}, Kind={self.kind.kind}"
            why = (
                f"failed to create manager for existing fields: failed to convert live object (/; {version}) to proper"
            )
            which = f"version: request to convert CR to an invalid group/version: {self.kind.api_version}"
            raise refusals.StatusError(500, "", f"{why} {which}")
        self._check(said)
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": said["metadata"]}
        outcome = self._writes.apply(resource, namespace, name, {**head, "spec": said.get("spec", {})}, options)
        return _shown(resource, outcome)

    def _write(
        self, resource: ServedResource, namespace: str, name: str, change: Callable[[Json], Any], options: Options
    ) -> Outcome:
        live = self._writes.live(resource, namespace, name)
        scale, warnings = incoming(self.kind, namespace, change(scale_of(resource, live.body)), options)
        about = scale["metadata"]
        if (given := about.get("name")) != name:
            raise refusals.bad_request(misnamed(given, name))
        if not resource.is_custom and about.get("uid", live.uid) != live.uid:
            why = f"Precondition failed: UID in precondition: {about['uid']}, UID in object meta: {live.uid}"
            raise refusals.conflict(resource.group, f"{resource.plural}/scale", name, why)
        if not resource.is_custom:
            self._check(scale)
        scaled = _paths(resource).scaled(live.body, scale.get("spec", {}).get("replicas", 0))
        scaled["metadata"] = {**live.body["metadata"], "resourceVersion": about.get("resourceVersion", "")}
        return _shown(resource, self._writes.update(resource, live, scaled, options))._replace(warnings=warnings)

    def _check(self, scale: Json) -> None:
        replicas = scale.get("spec", {}).get("replicas", 0)
        if replicas < 0:
            cause = refusals.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise refusals.invalid(self.kind.group, self.kind.kind, scale["metadata"].get("name", ""), [cause])


def scale_of(resource: ServedResource, scaled: Json) -> Json:
    """The scale of an object."""
    about, paths = scaled["metadata"], _paths(resource)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: about[key] for key in SHOWN if key in about},
        "spec": {"replicas": replicas} if (replicas := paths.replicas(scaled)) else {},
        "status": paths.status(scaled),
    }


def _paths(resource: ServedResource) -> ScalePaths:
    if resource.scale is None:
        raise refusals.no_such_resource()
    return resource.scale


def _shown(resource: ServedResource, outcome: Outcome) -> Outcome:
    return outcome._replace(stored=unsaved(scale_of(resource, outcome.stored.body)))
