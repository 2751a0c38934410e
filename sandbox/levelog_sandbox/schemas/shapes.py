"""The shape of a kind: fields, maps, sets and keyed lists, what is required, and defaults.

Built from the OpenAPI in `builtin.json` or from a custom resource's structural schema; both speak the same words.
"""

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

# Values that every server fills in but that its OpenAPI does not declare, by definition and field.
# Origin: what kube-apiserver 1.36 answers to a minimal manifest, checked by the contract suite.
FILLED_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "core.v1.PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
    "core.v1.Container": {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "core.v1.Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.ConfigMapVolumeSource": {"defaultMode": 420},
    "core.v1.SecretVolumeSource": {"defaultMode": 420},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.NamespaceSpec": {},
    "core.v1.ServiceSpec": {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    },
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "apps.v1.DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "apps.v1.DaemonSetSpec": {
        "revisionHistoryLimit": 10,
    },
    "batch.v1.JobSpec": {
        "backoffLimit": 6,
        "completions": 1,
        "parallelism": 1,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    },
    "networking.v1.NetworkPolicySpec": {"policyTypes": ["Ingress"]},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
}


class Schema:
    """One node; immutable once built. `ANY` stands for what no schema describes."""

    __slots__ = (
        "atomic",
        "default",
        "element",
        "fields",
        "format",
        "has_default",
        "has_validations",
        "int_or_string",
        "is_any",
        "keys",
        "list_type",
        "merge_key",
        "merges",
        "nullable",
        "preserve",
        "required",
        "rules",
        "type",
        "validations",
    )

    def __init__(self, source: Json) -> None:
        self.type: str = source.get("type", "")
        self.fields: dict[str, Schema] | None = None
        self.element: Schema | None = None
        self.list_type: str = source.get("x-kubernetes-list-type", "atomic")
        self.keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys", ()))
        self.atomic: bool = (
            self.list_type == "atomic" if self.type == "array" else source.get("x-kubernetes-map-type") == "atomic"
        )
        # How a strategic merge patch treats a list; the key may be another than those of `keys`.
        self.merges: bool = "merge" in source.get("x-kubernetes-patch-strategy", "").split(",")
        self.merge_key: str = source.get("x-kubernetes-patch-merge-key", "")
        self.required: tuple[str, ...] = tuple(source.get("required", ()))
        self.has_default: bool = "default" in source
        self.default: Any = source.get("default")
        self.nullable: bool = source.get("nullable", False)
        self.preserve: bool = source.get("x-kubernetes-preserve-unknown-fields", False)
        self.int_or_string: bool = source.get("x-kubernetes-int-or-string", False)
        # Whether nothing is declared below this node.
        self.is_any = True
        self.rules: Json = {rule: source[rule] for rule in RULES if rule in source}
        self.format: str = source.get("format", "")
        # Rules in CEL of this node; and whether it, or a node below, has some.
        self.validations: tuple[Json, ...] = tuple(source.get("x-kubernetes-validations") or ())
        self.has_validations = bool(self.validations)

    def child(self, key: str) -> "tuple[Schema, bool]":
        """The schema under a key of an object, and whether the key is a declared field rather than a map's entry."""
        if self.fields is not None and key in self.fields:
            return self.fields[key], True
        if self.type == "object" and self.element is not None:
            return self.element, False
        return ANY, False

    def knows(self, key: str) -> bool:
        """Whether an object of this shape may hold the key; keys that it may not hold are pruned."""
        if self.fields is not None and key in self.fields:
            return True
        return self.preserve or self.element is not None or (self.is_any and self.type != "object")


RULES: Final = (
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
ANY: Final = Schema({"x-kubernetes-preserve-unknown-fields": True})


class SchemaBuilder:
    """Turns OpenAPI into `Schema`; definitions are built once and may refer to themselves."""

    def __init__(self, definitions: Mapping[str, Json]) -> None:
        self._definitions = definitions
        self._built: dict[str, Schema] = {}

    def definition(self, name: str) -> Schema:
        """A named definition of `builtin.json`, such as `core.v1.Pod`."""
        if name not in self._built:
            source = {**self._definitions[name], "nullable": True}
            node = self._built[name] = Schema(source)
            self._fill(node, source)
            if name == "meta.v1.FieldsV1":
                node.preserve = True  # a tree of the names of fields
            if name == "meta.v1.OwnerReference":
                node.required = ()  # the server checks these itself, in words of its own
            for field, value in FILLED_IN.get(name, {}).items():
                if node.fields is not None and field in node.fields:
                    node.fields[field] = with_default(node.fields[field], value)
        return self._built[name]

    def build(self, source: Json) -> Schema:
        """A schema given inline, such as a custom resource's `openAPIV3Schema`."""
        if "$ref" in source:
            node = self.definition(source["$ref"])
            return with_default(node, source["default"]) if "default" in source else node
        node = Schema(source)
        self._fill(node, source)
        return node

    def custom_resource(self, source: Json) -> Schema:
        """The root of a custom resource: its schema, with the server's own apiVersion, kind and metadata."""
        root = self.build({**source, "type": "object"})
        root.fields = {**(root.fields or {}), **self._root_fields()}
        root.is_any = False
        return root

    def _root_fields(self) -> dict[str, Schema]:
        text = Schema({"type": "string"})
        return {"apiVersion": text, "kind": text, "metadata": self.definition("meta.v1.ObjectMeta")}

    def _fill(self, node: Schema, source: Json) -> None:
        if "properties" in source:
            node.fields = {name: self.build(child) for name, child in source["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(source.get(key), dict):
                node.element = self.build(source[key])
        if source.get("additionalProperties") is True:
            node.preserve = True
        if source.get("x-kubernetes-embedded-resource"):
            node.fields = {**(node.fields or {}), **self._root_fields()}
        node.is_any = node.fields is None and node.element is None
        below = (*(node.fields or {}).values(), *([node.element] if node.element else ()))
        node.has_validations |= any(child.has_validations for child in below)


def with_default(node: Schema, value: Any) -> Schema:
    """The same shape with a value that is filled in when the field is absent."""
    copy = Schema({})
    for slot in Schema.__slots__:
        setattr(copy, slot, getattr(node, slot))
    copy.default, copy.has_default = value, True
    return copy
