"""The Helm chart that `levelog manifests --format helm` writes: the objects of the kustomize base, with values in them.

A template is such an object as YAML, in which some values are expressions, each alone in its place and written by
`toJson`: JSON is YAML, whatever a value holds.
"""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

import msgspec

from levelog_base.wire.manifests import as_yaml
from levelog_cli.deployment.files import documents
from levelog_cli.deployment.kustomization import EGRESS
from levelog_cli.deployment.workloads import Object, Workloads, data_key
from levelog_cli.settings import LogLevel
from levelog_cli.wiring.roles import Role

_QUOTED: Final = re.compile(r"""'(\{\{ toJson [^'\n]+ \}\})'|"(\{\{ toJson [^"\n]+ \}\})\"""")
"""An expression as YAML quotes it, and as JSON does."""
_OPTIONAL: Final = re.compile(
    r"^( *)(\w+: \{\{ toJson \.Values\.(?:envFrom|imagePullSecrets|nodeSelector|tolerations) \}\}\n)", re.MULTILINE
)
"""A field that is there if its value is not empty."""
_MORE: Final = "LEVELOG_MORE"
"""Stands where the chart's user adds to a list of variables, or to labels."""
_MORE_ENV: Final = re.compile(rf"^( *)- {_MORE}\n", re.MULTILINE)
_MORE_LABELS: Final = re.compile(rf"^( *){_MORE}: ''\n", re.MULTILINE)
_FOREIGN: Final = re.compile(r"\{\{(?! toJson )")
"""Braces of the application's own, as in a name."""
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+")
"""The part of a Python version that is semantic versioning's, too."""


def contents(workloads: Workloads) -> dict[str, str]:
    """Text of each file, by its path in the folder; the same for the same operators and options."""
    values = _Values()
    valued = msgspec.structs.replace(workloads, inside=_expression(".Release.Namespace"), valued=values)
    templates = {
        "rbac.yaml": _template(valued.accounts()),
        "operators.yaml": _template(documents([_operators(valued)])),
        **{
            f"{role}.yaml": _template(documents([_open(valued.deployment(role)), valued.budget(role)])) for role in Role
        },
        "migrate.yaml": _migration(valued),
        "networkpolicies.yaml": EGRESS + _template(documents(valued.policies())),
        "servicemonitor.yaml": _monitor(valued),
        "NOTES.txt": _notes(workloads),
    }
    definitions, defaults = workloads.definitions(), {name: values.defaults[name] for name in _COMMENTS}
    return {
        **({"crds/definitions.yaml": as_yaml(definitions)} if definitions else {}),
        "Chart.yaml": documents([_chart(workloads)]),
        "values.yaml": "\n".join(f"# {_COMMENTS[name]}\n{documents([{name: defaults[name]}])}" for name in defaults),
        "values.schema.json": json.dumps(_schema(defaults), indent=2) + "\n",
        **{f"operators/{path}": text for path, text in sorted(workloads.code().items())},
        **{f"templates/{name}": text for name, text in templates.items()},
    }


class _Values:
    """Has the objects of the base read values, of which what they have themselves are the defaults."""

    def __init__(self) -> None:
        self.defaults: Object = {name: [] for name in ("env", "envFrom", "tolerations", "imagePullSecrets")}
        self.defaults |= {"nodeSelector": {}, "podLabels": {}, "serviceMonitor": {"enabled": False, "labels": {}}}

    def __call__(self, path: str, default: Any) -> str:
        *above, last = path.split(".")
        place = self.defaults
        for name in above:
            place = place.setdefault(name, {})
        place[last] = default
        return _expression(f".Values.{path}")


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


def _operators(workloads: Workloads) -> Object:
    """The ConfigMap, which reads the files of the chart."""
    made = workloads.operators()
    files = {data_key(path): _expression(f'(.Files.Get "operators/{path}")') for path in sorted(workloads.code())}
    return made | {"data": files}


def _migration(workloads: Workloads) -> str:
    """The Job, named after what it runs with these values, since a Job cannot change."""
    made = _open(workloads.migration())
    spec = documents([{"spec": made.pop("spec")}])
    made["metadata"]["name"] = name = f"{workloads.name}-migrate"
    digest = f'{{{{ include "{name}" . | sha256sum | trunc 10 }}}}'
    head = _template(documents([made])).replace(f"name: {name}\n", f"name: {name}-{digest}\n")
    return f'{{{{- define "{name}" }}}}\n{_template(spec)}{{{{- end }}}}\n{head}{{{{- include "{name}" . }}}}\n'


def _open(made: Object) -> Object:
    """The workload, with what the chart's user adds."""
    template = made["spec"]["template"]
    template["metadata"]["labels"][_MORE] = ""
    [container] = template["spec"]["containers"]
    container["env"].append(_MORE)
    container["envFrom"] = _expression(".Values.envFrom")
    for field in ("imagePullSecrets", "nodeSelector", "tolerations"):
        template["spec"][field] = _expression(f".Values.{field}")
    return made


def _monitor(workloads: Workloads) -> str:
    """A Service of all processes, and who scrapes it."""
    service = workloads.service("metrics")
    service["spec"]["selector"] = service["metadata"]["labels"]
    metadata = {**service["metadata"], "labels": _expression(".Values.serviceMonitor.labels")}
    spec = {"selector": {"matchLabels": service["metadata"]["labels"]}, "endpoints": [{"port": "http"}]}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata, "spec": spec}
    made = _template(documents([service, monitor]))
    return f"{{{{- if .Values.serviceMonitor.enabled }}}}\n{made}{{{{- end }}}}\n"


def _expression(path: str) -> str:
    return f"{{{{ toJson {path} }}}}"


def _template(text: str) -> str:
    """The YAML with its expressions as they are, and braces that are none kept from being read as one."""
    kept = _QUOTED.sub(r"\1\2", _FOREIGN.sub('{{ "{{" }}', text))
    kept = _OPTIONAL.sub(lambda found: f"{{{{- if {_path_in(found[2])} }}}}\n{found[0]}{{{{- end }}}}\n", kept)
    kept = _MORE_ENV.sub(r"{{- range .Values.env }}\n\1- {{ toJson . }}\n{{- end }}\n", kept)
    labels = r"{{- range $name, $value := .Values.podLabels }}\n\1{{ toJson $name }}: {{ toJson $value }}\n{{- end }}\n"
    return _MORE_LABELS.sub(labels, kept)


def _path_in(line: str) -> str:
    return line.partition("{{ toJson ")[2].partition(" }}")[0]


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
