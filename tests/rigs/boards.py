"""The boards and alerts of `deploy/`, as what they ask Prometheus and PostgreSQL."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
BOARDS: Final = ("operators", "levels")


class Question(NamedTuple):
    """What one panel, variable or alert asks."""

    name: str
    text: str
    """An expression or a query, with the variables of the board as they stand there."""


def board(name: str) -> dict[str, Any]:
    """A board as Grafana imports it."""
    found: dict[str, Any] = json.loads((DEPLOY / f"grafana/{name}.json").read_text())
    return found


def rule() -> dict[str, Any]:
    """The PrometheusRule."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus-rule.yaml").read_text())
    return found


def alerts() -> list[dict[str, Any]]:
    """All of them."""
    return [each for group in rule()["spec"]["groups"] for each in group["rules"]]


def expressions() -> Iterator[Question]:
    """What the board for operators asks Prometheus."""
    for panel in board("operators")["panels"]:
        for target in panel["targets"]:
            yield Question(panel["title"], target["expr"])


def queries() -> Iterator[Question]:
    """What the board for levels asks PostgreSQL."""
    for each in board("levels")["templating"]["list"]:
        if each["type"] == "query":
            yield Question(f"variable {each['name']}", each["query"])
    for panel in board("levels")["panels"]:
        for target in panel["targets"]:
            yield Question(panel["title"], target["rawSql"])
