"""Definitions in the shape of those that most clusters have: their traits, repeated and nested."""

from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
NUMBER: Final[Json] = {"type": "integer", "format": "int32"}
FREE: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True}


def thing(properties: Json, *required: str, **more: Any) -> Json:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {}), **more}


def many(items: Json, *keys: str, **more: Any) -> Json:
    listed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]} if keys else {}
    return {"type": "array", "items": items, **listed, **more}


def workload() -> Json:
    """What operators of workloads embed: quantities, lists that are maps, selectors."""
    quantity = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$",
        "x-kubernetes-int-or-string": True,
    }
    port = thing(
        {"containerPort": NUMBER, "protocol": TEXT | {"default": "TCP"}, "name": TEXT}, "containerPort", "protocol"
    )
    match = thing({"key": TEXT, "operator": TEXT, "values": many(TEXT)}, "key", "operator")
    labels = {"type": "object", "additionalProperties": TEXT}
    return thing(
        {
            "metadata": {"type": "object", **FREE},
            "ports": many(port, "containerPort", "protocol"),
            "limits": {"type": "object", "additionalProperties": quantity},
            "targetPort": {"x-kubernetes-int-or-string": True},
            "selector": thing(
                {"matchLabels": labels, "matchExpressions": many(match)}, **{"x-kubernetes-map-type": "atomic"}
            ),
            "tolerationSeconds": {"type": "integer", "format": "int64", "nullable": True},
            "values": FREE | {"description": "Anything."},
            "url": TEXT | {"format": "uri", "minLength": 1},
        },
        "ports",
        description="A workload. It runs.",
    )


def rules() -> Json:
    """What gateways and meshes say: choices, patterns, rules in CEL, nulls and defaults in lists."""
    name = TEXT | {"minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    kind = TEXT | {"enum": ["Exact", "Prefix", "=", "y", "1e3"], "minLength": 1, "maxLength": 63, "default": "="}
    reference = thing(
        {
            "group": TEXT | {"default": "", "maxLength": 253},
            "name": name,
            "port": NUMBER | {"minimum": 1},
            "kind": kind,
        },
        "name",
        "kind",
        **{
            "x-kubernetes-validations": [
                {"rule": "self.name != 'a' || has(self.port)", "message": "a has a port", "reason": "FieldValueInvalid"}
            ]
        },
    )
    either = {"oneOf": [{"required": ["exact"]}, {"required": ["regex"]}]}
    match = thing({"exact": TEXT, "regex": TEXT | {"pattern": r"^\p{L}+$"}}, **either)
    return thing(
        {
            "class": TEXT | {"nullable": True},
            "level": {"type": "integer", "enum": [1, 2], "format": "int32", "maximum": 9},
            "mode": TEXT | {"enum": ["on", "off"], "nullable": True},
            "share": {"type": "number", "multipleOf": 0.1, "minimum": 0, "exclusiveMinimum": True},
            "much": {"type": "integer", "maximum": 18446744073709551615},
            "since": TEXT | {"format": "date-time", "minLength": 4, "default": "2026-01-01T00:00:00Z"},
            "nul": TEXT | {"default": "a\x00b", "description": 'Has a\x00 in it, and \\n and "quotes".'},
            "tags": many(TEXT | {"default": "x"}, **{"x-kubernetes-list-type": "set", "default": ["b", "a"]}),
            "routes": many(
                reference, maxItems=16, default=[{"name": "web", "kind": "Exact"}, {"name": "b", "kind": "="}]
            ),
            "matches": many(match, minItems=1),
            "$ref": TEXT,
            "true": {"type": "boolean", "enum": [True]},
            "kept": thing({"a": NUMBER}, **FREE),
            "embedded": thing({"apiVersion": TEXT, "kind": TEXT}, **FREE, **{"x-kubernetes-embedded-resource": True}),
            "open": {"type": "object", "additionalProperties": True},
            "text": TEXT | {"default": "22:22"},
        },
        "text",
        "class",
        **{"x-kubernetes-validations": [{"rule": "!has(self.level) || self.level < 3", "message": "few"}]},
    )


def status() -> Json:
    when = TEXT | {"format": "date-time"}
    condition = thing(
        {
            "type": TEXT | {"maxLength": 316},
            "status": TEXT | {"enum": ["True", "False", "Unknown"]},
            "reason": TEXT,
            "lastTransitionTime": when,
        },
        "type",
        "status",
        "lastTransitionTime",
    )
    count = NUMBER | {"default": 0}
    return thing({"conditions": many(condition, "type"), "replicas": NUMBER, "seen": count, "selector": TEXT}, "seen")


NAMES: Final = ["issuers.certs.example.com", "gateways.large.k8s.io"]
"""A group of Kubernetes' own needs an approval."""


def definition(name: str) -> Json:
    """A definition of two versions, of which the second is stored."""
    plural, _, group = name.partition(".")
    kind = plural.removesuffix("s").capitalize()
    parts = {f"part{number}": rules() for number in range(8)}
    spec = {"replicas": NUMBER, **parts, "templates": many(thing({"workload": workload(), **parts}))}
    columns = [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Seen", "type": "integer", "format": "int32", "jsonPath": ".status.seen", "description": "How often."},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "Gone", "type": "string", "jsonPath": ".status.gone"},
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = thing(
        {
            "apiVersion": TEXT | {"description": "Of the object."},
            "kind": TEXT,
            "metadata": {"type": "object"},
            "spec": thing(spec, description="What should be."),
            "status": status(),
        },
        "spec",
        "status",
        description="One of them.",
    )
    stored = {
        "name": "v1",
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "subresources": {"status": {}, "scale": scale | {"labelSelectorPath": ".status.selector"}},
        "selectableFields": [{"jsonPath": ".status.selector"}],
        "schema": {"openAPIV3Schema": schema},
    }
    old = {
        "name": "v1alpha1",
        "served": True,
        "storage": False,
        "deprecated": True,
        "schema": {"openAPIV3Schema": {"type": "object", **FREE}},
    }
    annotations = {"controller-gen.example.com/version": "v1"}
    if group.endswith(".k8s.io"):
        annotations["api-approved.kubernetes.io"] = "https://github.com/kubernetes/kubernetes/pull/1"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "kind": kind,
                "singular": f"one{kind.lower()}",
                "listKind": f"{kind}List",
                "shortNames": [plural[:3]],
            },
            "versions": [old, stored],
        },
    }


def objects(schema: Json) -> Iterator[Any]:
    """Values of a schema: with every field that it names, and with those that have to be."""
    yield _value(schema, is_full=True)
    yield _value(schema, is_full=False)


def _value(schema: Json, *, is_full: bool) -> Any:
    if "default" in schema and not is_full:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("x-kubernetes-int-or-string"):
        return "5" if is_full else 5
    match schema.get("type"):
        case "object":
            names = schema.get("properties", {}) if is_full else schema.get("required", ())
            made = {name: _value(schema["properties"][name], is_full=is_full) for name in names}
            others = schema.get("additionalProperties")
            return made | ({"key": _value(others, is_full=True)} if isinstance(others, dict) and is_full else {})
        case "array":
            return [_value(schema["items"], is_full=is_full)]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "string":
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "text"
        case _:
            return {"anything": [1]}
