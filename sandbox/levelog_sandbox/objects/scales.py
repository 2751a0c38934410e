"""The scale of a workload: its replicas as an object of a kind of their own, which reads and writes the workload.

Limits: custom resources have no scale.
"""

from collections.abc import Callable
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.objects.incoming import Options, applied, incoming, misnamed, unfit_patch
from levelog_sandbox.objects.metadata import unsaved
from levelog_sandbox.objects.revisions import Stored
from levelog_sandbox.objects.verbs import Outcome, Writes
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]

SHOWN: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scales:
    """What the API does with `/scale`; `kind` is that of the scales."""

    def __init__(self, writes: Writes, kind: ServedResource) -> None:
        self._writes = writes
        self.kind = kind

    def get(self, resource: ServedResource, namespace: str, name: str) -> Stored:
        """The scale of a workload. Raises `StatusError` 404."""
        return unsaved(scale_of(self._writes.live(resource, namespace, name).body))

    def replace(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Scale a workload as the body says. Raises `StatusError` 400, 404, 409, 422."""
        return self._write(resource, namespace, name, lambda _: body, options)

    def patch(
        self, resource: ServedResource, namespace: str, name: str, change: Callable[[Json], Any], options: Options
    ) -> Outcome:
        """Scale a workload as `change` makes of its scale. Raises `StatusError` 400, 404, 409, 422."""

        def changed(scale: Json) -> Any:
            made = change(scale)
            if wrong := unfit_patch(self.kind, made, options):
                raise wrong
            return made

        return self._write(resource, namespace, name, changed, options)

    def apply(self, resource: ServedResource, namespace: str, name: str, body: Any, options: Options) -> Outcome:
        """Server-side apply of a scale: its manager owns the replicas. Raises `StatusError` 400, 404, 409, 422, 500."""
        said = applied(self.kind, namespace, name, body, "")
        self._check(said)
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": said["metadata"]}
        outcome = self._writes.apply(resource, namespace, name, {**head, "spec": said.get("spec", {})}, options)
        return _shown(outcome)

    def _write(
        self, resource: ServedResource, namespace: str, name: str, change: Callable[[Json], Any], options: Options
    ) -> Outcome:
        live = self._writes.live(resource, namespace, name)
        scale, warnings = incoming(self.kind, namespace, change(scale_of(live.body)), options)
        about = scale["metadata"]
        if (given := about.get("name")) != name:
            raise refusals.bad_request(misnamed(given, name))
        if about.get("uid", live.uid) != live.uid:
            why = f"Precondition failed: UID in precondition: {about['uid']}, UID in object meta: {live.uid}"
            raise refusals.conflict(resource.group, f"{resource.plural}/scale", name, why)
        self._check(scale)
        version = {"resourceVersion": about.get("resourceVersion", "")}
        spec = {**live.body["spec"], "replicas": scale.get("spec", {}).get("replicas", 0)}
        scaled = {**live.body, "metadata": {**live.body["metadata"], **version}, "spec": spec}
        return _shown(self._writes.update(resource, live, scaled, options))._replace(warnings=warnings)

    def _check(self, scale: Json) -> None:
        replicas = scale.get("spec", {}).get("replicas", 0)
        if replicas < 0:
            cause = refusals.invalid_value("spec.replicas", str(replicas), "must be greater than or equal to 0")
            raise refusals.invalid(self.kind.group, self.kind.kind, scale["metadata"].get("name", ""), [cause])


def scale_of(workload: Json) -> Json:
    """A workload's scale."""
    about, spec, status = workload["metadata"], workload["spec"], workload.get("status", {})
    shown: Json = {"replicas": status.get("replicas", 0)}
    if selector := selector_text(spec.get("selector", {})):
        shown["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: about[key] for key in SHOWN if key in about},
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": shown,
    }


def selector_text(selector: Json) -> str:
    """A label selector as it is written in a query, by key."""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append((key, texts.get(term["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _shown(outcome: Outcome) -> Outcome:
    return outcome._replace(stored=unsaved(scale_of(outcome.stored.body)))
