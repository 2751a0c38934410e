"""Where a scalable resource keeps its replicas and its selector, and which values are allowed."""

from dataclasses import dataclass
from typing import Any, Final

from levelog_sandbox.api import refusals
from levelog_sandbox.api.refusals import RefusalCause

Json = dict[str, Any]

MOST: Final = 2**31 - 1  # of an int32


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths of what a scale shows; of a core kind the selector is an object, of a custom resource a text."""

    wanted: tuple[str, ...]
    counted: tuple[str, ...]
    selector: tuple[str, ...]

    @classmethod
    def of(cls, declared: Json | None) -> "ScalePaths | None":
        """From `subresources.scale` of a definition."""
        if declared is None:
            return None
        paths = (declared.get(f"{each}Path", "") for each in ("specReplicas", "statusReplicas", "labelSelector"))
        return cls(*(tuple(path.strip(".").split(".")) if path else () for path in paths))

    def replicas(self, body: Json) -> int | None:
        """The wanted number; None where the object has none."""
        replicas: int | None = _at(body, self.wanted)
        return replicas

    def status(self, body: Json) -> Json:
        """The status of the scale."""
        shown: Json = {"replicas": _at(body, self.counted) or 0}
        selector = _at(body, self.selector) if self.selector else None
        text = selector_text(selector) if isinstance(selector, dict) else selector
        return {**shown, "selector": text} if text else shown

    def scaled(self, body: Json, replicas: int | None) -> Json:
        """The object with so many replicas wanted, or with nothing said about it."""
        scaled: Json = _with(body, self.wanted, replicas)
        return scaled

    def faults(self, body: Json) -> list[RefusalCause]:
        """The faults in the replicas of a custom resource."""
        found: list[RefusalCause] = []
        for path in (self.wanted, self.counted):
            value = _at(body, path)
            if isinstance(value, int) and not 0 <= value <= MOST:
                why = "should be a non-negative integer" if value < 0 else f"should be less than or equal to {MOST}"
                found.append(refusals.invalid_value(f".{'.'.join(path)}", value, why))
        return found


OF_WORKLOADS: Final = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def selector_text(selector: Json) -> str:
    """A label selector as it is written in a query, by key."""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append((key, texts.get(term["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _with(body: Any, path: tuple[str, ...], value: int | None) -> Any:
    if not path:
        return value
    held: Json = body if isinstance(body, dict) else {}
    if len(path) == 1 and value is None:
        return {key: item for key, item in held.items() if key != path[0]}
    return {**held, path[0]: _with(held.get(path[0]), path[1:], value)}
