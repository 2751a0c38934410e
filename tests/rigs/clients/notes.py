"""What a client was answered, in a form that is the same on every server."""

import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

# Another one on each server, or at each write.
FLEETING = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "time",
        "clusterIP",
        "clusterIPs",
        "continue",
        "kubernetes.io/change-cause",
        "kubectl.kubernetes.io/restartedAt",
    }
)
AGE = re.compile(r"\b\d+(s|ms|m)\b")
VERSION = re.compile(r'resourceVersion": ?"\d+"')


class Notes:
    """The steps of a story and what came of them, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Any]] = []

    def add(self, step: str, answer: Any) -> None:
        self.steps.append((step, steady(answer)))

    def refused(self, step: str, error: type[Exception], act: Callable[[], Any], status: Callable[[Any], Any]) -> None:
        """A step that must be refused: the status of the error is noted."""
        try:
            answer = act()
        except error as refusal:
            self.add(step, status(refusal))
        else:
            raise AssertionError(f"{step}: not refused, but {answer}")


def steady(answer: Any) -> Any:
    """The answer without what differs from server to server; owners of fields in one order."""
    if isinstance(answer, dict):
        kept = {key: steady(value) for key, value in answer.items() if key not in FLEETING and value is not None}
        if "managedFields" in kept:
            kept["managedFields"] = sorted(kept["managedFields"], key=str)
        return kept
    if isinstance(answer, list | tuple):
        return [steady(item) for item in answer]
    return answer


def steady_text(text: str) -> str:
    """Output for people, without ages."""
    lines = [" ".join(AGE.sub("AGE", line).split()) for line in text.splitlines()]
    return "\n".join(lines)


def labelled(name: str, labels: Json | None = None, **content: Any) -> Json:
    """A ConfigMap."""
    about = {"name": name, "labels": labels or {"app": "x"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": content}


def deployment(name: str, replicas: int = 2) -> Json:
    """A Deployment of two containers."""
    containers = [
        {"name": "a", "image": "x:1", "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 80}]},
        {"name": "b", "image": "y:1"},
    ]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    about = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}


# One container by its name, which merge patches cannot do; one variable is new and one goes.
PATCH: Json = {
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "x:2",
                        "env": [{"name": "F", "value": "2"}, {"name": "E", "$patch": "delete"}],
                    }
                ]
            }
        }
    }
}
