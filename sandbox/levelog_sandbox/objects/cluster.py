"""The state behind the API: every write to it is logged, from HTTP requests and direct calls alike."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from levelog_sandbox.api import refusals
from levelog_sandbox.api.urltargets import Access, Denial, RequestTarget
from levelog_sandbox.controllers.definitions import STORAGE, Definitions
from levelog_sandbox.controllers.garbage import USER_AGENT, GarbageCollector
from levelog_sandbox.objects.deletion import DeleteOptions, Deletion
from levelog_sandbox.objects.incoming import Options
from levelog_sandbox.objects.metadata import Clock, timestamp
from levelog_sandbox.objects.revisions import Change, Collection, Store, Stored
from levelog_sandbox.objects.scales import Scales
from levelog_sandbox.objects.verbs import Outcome, Writes
from levelog_sandbox.objects.watcher import WatchQueue
from levelog_sandbox.requestlog import LoggedRequest, RequestLog
from levelog_sandbox.schemas.registry import Registry, ServedResource

Json = dict[str, Any]

# The field managers under which the server itself writes, and what runs pods.
SERVER = "kube-apiserver"
KUBELET = "kubelet"


class Cluster:
    """Store, registry, rules and request log of one API; the four namespaces of any cluster exist from the start."""

    def __init__(
        self, *, history: int, established_after: float, pods_run: bool, denials: Sequence[Denial], clock: Clock | None
    ) -> None:
        self.clock: Clock = clock or (lambda: datetime.now(UTC))
        self.store = Store(history=history)
        self.registry = Registry()
        self.requests = RequestLog()
        self.access = Access(denials)
        self.watchers: set[WatchQueue] = set()
        self.writes = Writes(self.store, self.clock)
        self.scales = Scales(self.writes, self.registry.scale)
        self.deletion = Deletion(self.store, self.clock)
        self.definitions = Definitions(
            self.store,
            self.registry,
            self.clock,
            established_after=established_after,
            write_status=self._write_definition_status,
            end_watches=self.end_watches,
        )
        self.garbage = GarbageCollector(self.store, self.registry, self._collect)
        if pods_run:
            self.store.listeners.append(self._run_pod)
        namespaces = self.registry.named("namespaces")
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.writes.create(namespaces, "", {"metadata": {"name": name}}, Options(field_manager=SERVER))

    def end_watches(self, group: str, plural: str) -> None:
        """Close the watches of a resource."""
        for watcher in self.watchers:
            if (watcher.resource.group, watcher.resource.plural) == (group, plural):
                watcher.end()

    def logged(self, target: RequestTarget, verb: str, write: Callable[[], Outcome], user_agent: str) -> Outcome:
        """Carry out a write that did not come over HTTP, and log it like one that did. Raises what the write raises."""
        path = path_of(target._replace(name="") if verb == "create" else target)
        code, changed = 500, False
        try:
            outcome = write()
            code, changed = outcome.code, outcome.changed
            target = target._replace(name=outcome.stored.name)
        except refusals.StatusError as refused:
            code = refused.code
            raise
        else:
            return outcome
        finally:
            manager = "" if verb == "delete" else user_agent
            about: Json = {"user_agent": user_agent, "field_manager": manager, "status_code": code, "changed": changed}
            self.log(target, verb, method=METHODS[verb], path=path, **about)

    def log(self, target: RequestTarget, verb: str, **answered: Any) -> None:
        """Add one request to the log; `answered` is the rest of a LoggedRequest."""
        number, resource = self.requests.next_number(), target.resource.name
        where: Json = {"namespace": target.namespace, "name": target.name, "subresource": target.subresource}
        request = LoggedRequest(number=number, at=self.clock(), verb=verb, resource=resource, **where, **answered)
        self.requests.add(request)

    def _write_definition_status(self, stored: Stored, body: Json) -> None:
        resource = self.registry.named(STORAGE)
        self.writes.replace(resource, "", stored.name, body, Options(field_manager=SERVER, subresource="status"))

    def _collect(self, resource: ServedResource, stored: Stored) -> None:
        target = RequestTarget(resource, stored.namespace, stored.name, "")
        options = DeleteOptions(uid=stored.uid, policy="Background")
        self.logged(
            target,
            "delete",
            lambda: self.deletion.delete(resource, stored.namespace, stored.name, options),
            USER_AGENT,
        )

    def _run_pod(self, collection: Collection, change: Change) -> None:
        """A kubelet in two lines: a new pod runs at once, a marked one ends at once."""
        pod = change.after
        if collection.storage != "pods" or pod is None:
            return
        about = pod.body["metadata"]
        if "deletionTimestamp" in about and about.get("deletionGracePeriodSeconds"):
            self.deletion.delete(
                self.registry.named("pods"), pod.namespace, pod.name, DeleteOptions(uid=pod.uid, grace_seconds=0)
            )
        elif pod.body.get("status", {}).get("phase") == "Pending":
            self.writes.patch(
                self.registry.named("pods"),
                pod.namespace,
                pod.name,
                lambda body: {**body, "status": running(body, self.clock)},
                Options(field_manager=KUBELET, subresource="status"),
            )


def running(body: Json, clock: Clock) -> Json:
    """The status of a pod whose containers all run and are ready."""
    now = timestamp(clock())
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "lastState": {},
        }
        for container in body.get("spec", {}).get("containers", ())
    ]
    return {
        **body.get("status", {}),
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": containers,
        "startTime": now,
    }


METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "apply": "PATCH", "delete": "DELETE"}


def path_of(target: RequestTarget) -> str:
    """The URL path of a target."""
    resource = target.resource
    path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if target.namespace:
        path += f"/namespaces/{target.namespace}"
    return "/".join(part for part in (f"{path}/{resource.plural}", target.name, target.subresource) if part)
