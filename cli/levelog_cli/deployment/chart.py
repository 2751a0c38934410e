"""The Helm chart that `levelog manifests --format helm` writes: the kustomize base with values in it."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

import msgspec

from levelog_base.wire.manifests import as_yaml
from levelog_cli.deployment.values import (
    Object,
    Value,
    chart_value,
    expression,
    filled,
    manifests,
    quoted_template,
    template_of,
)
from levelog_cli.deployment.workloads import Workloads
from levelog_cli.settings import LogLevel

_VALUES: Final = ".Values."
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+")
"""The part of a Python version that is semantic versioning's, too."""


def contents(workloads: Workloads) -> dict[str, str]:
    """Text of each file, by its path in the folder; the same for the same operators and options."""
    defaults: Object = {name: {} for name in _COMMENTS} | {"serviceMonitor": {"enabled": False, "labels": {}}}

    def printed(objects: list[Object]) -> str:
        filled(objects, lambda value: _set_default(defaults, value))
        return quoted_template(objects)

    definitions = workloads.definitions()
    parts = msgspec.structs.replace(workloads, inside=expression(".Release.Namespace")).parts(printed)
    return {
        **({"crds/definitions.yaml": as_yaml(definitions)} if definitions else {}),
        "Chart.yaml": manifests([_chart(workloads)]),
        "values.yaml": "\n".join(f"# {_COMMENTS[name]}\n{manifests([{name: defaults[name]}])}" for name in defaults),
        "values.schema.json": json.dumps(_schema(defaults), indent=2) + "\n",
        **{f"operators/{path}": text for path, text in sorted(workloads.code().items())},
        **{f"templates/{name}": template_of(text) for name, text in parts.items()},
        "templates/servicemonitor.yaml": _monitor(workloads),
        "templates/NOTES.txt": _notes(workloads),
    }


def _set_default(defaults: Object, value: Value) -> None:
    """Put the default of a value where values.yaml has it."""
    if value.expression.startswith(_VALUES):
        *above, last = value.expression.removeprefix(_VALUES).split(".")
        place = defaults
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value.default


def _chart(workloads: Workloads) -> Object:
    release = _RELEASE.match(version("levelog"))
    number = release[0] if release else "0.0.0"
    what = f"{workloads.application.name}: operators on levelog. Made by `levelog manifests`."
    return {
        "apiVersion": "v2",
        "name": workloads.name,
        "description": what,
        "type": "application",
        "version": number,
        "appVersion": number,
    }


_COMMENTS: Final = {
    "image": "With levelog and the libraries of the operators.",
    "replicas": "Of ingest one works, and the others stand by; more than 16 of process are idle.",
    "resources": "Of the container of each process.",
    "nats": "The Secret with an address of NATS for each process, and the keys of these in it.",
    "database": "The same for PostgreSQL, with a database for this application alone.",
    "redaction": "At least 16 random bytes, the same for as long as the log is kept.",
    "logLevel": f"One of {', '.join(LogLevel)}.",
    "env": "Further variables of all processes, as a container has them.",
    "envFrom": "ConfigMaps and Secrets with further variables.",
    "nodeSelector": "Labels of the nodes to run on.",
    "tolerations": "Taints of nodes to run on nevertheless.",
    "imagePullSecrets": "Secrets for the registry of the image: [{name: NAME}].",
    "podLabels": "Further labels of the pods.",
    "serviceMonitor": "Lets the Prometheus Operator scrape the processes, with the labels by which it finds monitors.",
}


def _schema(values: Object) -> Object:
    """The schema of the values: types as the defaults have them, and only names that the templates read."""
    made = _schema_of(values)
    made["properties"] |= {
        "logLevel": {"enum": [*map(str, LogLevel)]},
        "global": {"type": "object"},  # Helm gives it to each chart that stands within another
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#", **made}


def _schema_of(value: Any) -> Object:
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case str():
            return {"type": "string", "minLength": 1}
        case list():
            return {"type": "array", "items": {"type": "object"}}
        case {"requests": _}:  # as a container has them
            return {"type": "object"}
        case {} if not value:  # labels
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case _:
            properties = {name: _schema_of(each) for name, each in value.items()}
            closed = {"required": [*properties], "additionalProperties": False}
            return {"type": "object", "properties": properties, **closed}


def _monitor(workloads: Workloads) -> str:
    """A Service of all processes, and who scrapes it."""
    service = msgspec.structs.replace(workloads, inside=expression(".Release.Namespace")).service("metrics")
    service["spec"]["selector"] = labels = service["metadata"]["labels"]
    metadata = service["metadata"] | {"labels": chart_value("serviceMonitor.labels", {})}
    spec = {"selector": {"matchLabels": labels}, "endpoints": [{"port": "http"}]}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata, "spec": spec}
    made = template_of(quoted_template([service, monitor]))
    return f"{{{{- if .Values.serviceMonitor.enabled }}}}\n{made}{{{{- end }}}}\n"


def _notes(workloads: Workloads) -> str:
    secrets = "".join(f"  {line}\n" for line in _asked())
    return f"""{workloads.name} runs in {{{{ .Release.Namespace }}}} as soon as the database is migrated.

Not part of it are the Secrets with its addresses:
{secrets}
What it decided, and why, from a machine that reaches NATS and PostgreSQL:
  levelog levels
  levelog why OBJECT

Their states: kubectl -n {{{{ .Release.Namespace }}}} get pods -l app={workloads.name}
"""


def _asked() -> Iterator[str]:
    for server in ("nats", "database"):
        values = f".Values.{server}"
        yield f'{{{{ {values}.secret }}}}: {{{{ values {values}.keys | sortAlpha | join ", " }}}}'
    yield "{{ .Values.redaction.secret }}: {{ .Values.redaction.key }}"
