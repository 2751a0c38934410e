"""A cluster in memory: objects with versions, uids, labels and owners, and the API that an actuator writes to.

It knows one group, two namespaces and what levelog sends: GET, apply, DELETE. What it does not imitate: field managers
beside levelog's own, admission, quotas, and the garbage collector, whose work is a step of its own. An object of the
other namespace is named `other/NAME`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_kube.client import Answer
from levelog_kube.requestfailures import ApiError, NoAnswer, Unreachable, Withheld

GROUP: Final = "example.com"
NAMESPACE: Final = "default"
WEBS: Final = "webs"
PARTS: Final = "parts"
CONFIGS: Final = "configs"
RACKS: Final = "racks"
KINDS: Final = {WEBS: "Web", PARTS: "Part", CONFIGS: "Config", RACKS: "Rack"}

Body = dict[str, Any]


class Happening(Struct, frozen=True):
    """One change of one object, as the watch of its resource would tell it."""

    revision: int
    key: ObjectKey
    is_deletion: bool
    uid: str
    body: bytes


def key_of(resource: str, name: str) -> ObjectKey:
    namespace, _, name = name.rpartition("/")
    return ObjectKey(group=GROUP, resource=resource, namespace=namespace or NAMESPACE, name=name)


def name_of(key: ObjectKey) -> str:
    """The name that `key_of` takes."""
    return key.name if key.namespace == NAMESPACE else f"{key.namespace}/{key.name}"


class Cluster:
    """The truth, and everything that ever happened to it."""

    def __init__(self) -> None:
        self.revision = 0
        self.restores = 0
        """How often it has gone back to an earlier revision."""
        self.objects: dict[ObjectKey, Body] = {}
        self.happenings: list[Happening] = []
        self.on_change: Callable[[Happening], None] = lambda _: None

    def uid(self, resource: str, name: str) -> str:
        """Uid of an object that exists, else an empty text."""
        body = self.objects.get(key_of(resource, name))
        return "" if body is None else str(body["metadata"]["uid"])

    def create(self, resource: str, name: str, content: Body) -> None:
        """Make an object; `content` has spec and parts of the metadata."""
        key = key_of(resource, name)
        metadata = {"name": key.name, "namespace": key.namespace, **(content.get("metadata") or {})}
        metadata["uid"] = f"{name}.{self.revision + 1}{'*' * self.restores}"
        self._store(key, {**content, "metadata": metadata})

    def change(self, resource: str, name: str, edit: Callable[[Body], None]) -> bool:
        """Edit an object; tells whether it is another one now. One without finalizers that is being deleted goes."""
        key = key_of(resource, name)
        body = deepcopy(self.objects[key])
        edit(body)
        if body == self.objects[key]:
            return False
        if "deletionTimestamp" in body["metadata"] and not body["metadata"].get("finalizers"):
            self._remove(key)
        else:
            self._store(key, body)
        return True

    def delete(self, resource: str, name: str) -> None:
        """Delete an object; one with finalizers gets its deletionTimestamp."""
        key = key_of(resource, name)
        metadata = self.objects[key]["metadata"]
        if not metadata.get("finalizers"):
            self._remove(key)
        elif "deletionTimestamp" not in metadata:
            self.change(resource, name, lambda body: body["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))

    def orphans(self) -> list[str]:
        """Parts whose controlling owner does not exist."""
        uids = {(key.namespace, body["metadata"]["uid"]) for key, body in self.objects.items()}
        return [
            name_of(key)
            for key, body in sorted(self.objects.items())
            if key.resource == PARTS and (owner := controller_of(body)) and (key.namespace, owner) not in uids
        ]

    def before(self, happening: Happening) -> list[Happening]:
        """What had happened to an object."""
        return [each for each in self.happenings if each.uid == happening.uid and each.revision < happening.revision]

    def _store(self, key: ObjectKey, body: Body) -> None:
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[key] = body
        self._tell(key, body, is_deletion=False)

    def _remove(self, key: ObjectKey) -> None:
        self.revision += 1
        body = self.objects.pop(key)
        body["metadata"]["resourceVersion"] = str(self.revision)
        self._tell(key, body, is_deletion=True)

    def _tell(self, key: ObjectKey, body: Body, *, is_deletion: bool) -> None:
        uid = str(body["metadata"]["uid"])
        happening = Happening(self.revision, key, is_deletion, uid, recorded(body))
        self.happenings.append(happening)
        self.on_change(happening)


def controller_of(body: Mapping[str, Any]) -> str:
    """Uid of the controlling owner; empty: none."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def recorded(body: Mapping[str, Any]) -> bytes:
    """The object as ingest records it."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return msgspec.json.encode({**body, "metadata": metadata})


class Api:
    """The cluster as an actuator's client sees it; `disturbance` is what happens to the next write.

    `lost`: it takes effect and its answer does not arrive. `dropped`: it does not take effect and no answer arrives.
    `unreachable`: no connection. `busy`: 503. `refused`: 403.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.disturbance = ""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: timedelta | None = None,  # noqa: ASYNC109
        may_send: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Answer like kube-apiserver; signature and errors are those of KubeClient.request."""
        namespace, resource, name = path.rsplit("/", 3)[-3:]
        key = key_of(resource, f"{namespace}/{name}")
        if method == "GET":
            return self._found(method, path, key)
        if not may_send():
            raise Withheld(f"{method} {path}: not sent")
        disturbance, self.disturbance = self.disturbance, ""
        match disturbance:
            case "dropped":
                raise NoAnswer(f"{method} {path}: the connection broke")
            case "unreachable":
                raise Unreachable(f"{method} {path}: no connection")
            case "busy":
                raise ApiError(method, path, 503, reason="ServiceUnavailable", message="busy")
            case "refused":
                raise ApiError(method, path, 403, reason="Forbidden", message="forbidden")
            case _:
                pass
        content = msgspec.json.decode(body or b"{}")
        answer = self._delete(path, key, content) if method == "DELETE" else self._apply(path, key, content)
        if disturbance == "lost":
            raise NoAnswer(f"{method} {path}: the answer was lost")
        return answer

    def _found(self, method: str, path: str, key: ObjectKey) -> Answer:
        body = self._cluster.objects.get(key)
        if body is None:
            message = f'{key.group_resource} "{key.name}" not found'
            raise ApiError(method, path, 404, reason="NotFound", message=message)
        return _answer(200, body)

    def _delete(self, path: str, key: ObjectKey, options: Mapping[str, Any]) -> Answer:
        self._found("DELETE", path, key)
        uid = self._cluster.uid(key.resource, name_of(key))
        if (options.get("preconditions") or {}).get("uid", uid) != uid:
            raise ApiError("DELETE", path, 409, reason="Conflict", message="the UID in the precondition does not match")
        self._cluster.delete(key.resource, name_of(key))
        if key in self._cluster.objects:
            return self._found("DELETE", path, key)
        return _answer(200, {"metadata": {}, "details": {"uid": uid}})

    def _apply(self, path: str, key: ObjectKey, manifest: Body) -> Answer:
        metadata: Body = dict(manifest["metadata"])
        wanted_uid, version = metadata.pop("uid", ""), metadata.pop("resourceVersion", "")
        name = name_of(key)
        uid = self._cluster.uid(key.resource, name)
        if wanted_uid and wanted_uid != uid:
            raise ApiError("PATCH", path, 409, reason="Conflict", message="uid mismatch")
        if uid and version not in ("", self._cluster.objects[key]["metadata"]["resourceVersion"]):
            raise ApiError("PATCH", path, 409, reason="Conflict", message="the object has been modified")
        applied = {"spec": manifest["spec"], "metadata": metadata}
        managed = {
            "managedFields": [{"manager": "levelog-machine", "operation": "Apply", "fieldsV1": _fields(applied)}]
        }
        if not uid:
            self._cluster.create(key.resource, name, {**applied, "metadata": metadata | managed})
            return _answer(201, self._cluster.objects[key])
        owner = controller_of(self._cluster.objects[key])
        if owner and controller_of(manifest) not in ("", owner):
            raise ApiError("PATCH", path, 422, reason="Invalid", message="only one reference can be the controller")
        self._cluster.change(key.resource, name, lambda body: _merge(body, applied, managed))
        return _answer(200, self._cluster.objects[key])


def _answer(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, {}, msgspec.json.encode(body))


def _merge(body: Body, applied: Mapping[str, Any], managed: Mapping[str, Any]) -> None:
    body["spec"] = {**body.get("spec", {}), **applied["spec"]}
    metadata, wanted = body["metadata"], applied["metadata"]
    if labels := {**metadata.get("labels", {}), **wanted.get("labels", {})}:
        metadata["labels"] = labels
    if wanted.get("ownerReferences"):
        metadata["ownerReferences"] = wanted["ownerReferences"]
    metadata.update(managed)


def _fields(applied: Mapping[str, Any]) -> Body:
    """Tree of managedFields for a manifest of levelog's."""
    metadata = applied["metadata"]
    fields: Body = {"f:spec": {f"f:{name}": {} for name in applied["spec"]}, "f:metadata": {}}
    if "labels" in metadata:
        fields["f:metadata"]["f:labels"] = {f"f:{name}": {} for name in metadata["labels"]}
    if owners := metadata.get("ownerReferences"):
        fields["f:metadata"]["f:ownerReferences"] = {f'k:{{"uid":"{owner["uid"]}"}}': {} for owner in owners}
    return fields
