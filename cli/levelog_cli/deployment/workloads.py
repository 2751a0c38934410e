"""What runs an application on Kubernetes: its processes, the migration before them, and what limits and scales them.

NATS, PostgreSQL and the Secret with their addresses are somebody else's, and referred to.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_cli.crds.definitions import definitions_of, is_own
from levelog_cli.deployment.accounts import dns_name, roles_of
from levelog_cli.deployment.values import Object, Printer, Value, chart_value, filled, manifests, with_defaults
from levelog_cli.loading import LoadedApplication, load_classes
from levelog_cli.packages import package_of
from levelog_cli.settings import LogLevel, variable
from levelog_cli.wiring.roles import Role, needs_cluster, needs_sql

KEY_OF_REDACTION: Final = "redaction.key"
MOST_PROCESSORS: Final = 16
"""Each folds at least one partition of the log, which has 16."""
_MOST_CODE_BYTES: Final = 1_000_000
"""What the API server takes as a ConfigMap is 1 MiB."""
_LONGEST_HASH: Final = 10
RUN: Final = "run"
"""All roles in one process, with embedded servers."""
_OPERATORS, _KEYS, _DATA, _PORT = "/operators", "/keys", "/data", 8080
_EGRESS: Final = {Role.INGEST: (4222, 443, 6443), Role.PROCESS: (4222, 5432), Role.ACTUATE: (4222, 5432, 443, 6443)}
"""NATS 4222, PostgreSQL 5432; the API server is 443 at its Service, and mostly 6443 behind it."""
_EGRESS_IS_WIDE: Final = """\
# Egress names ports, and no addresses: those of NATS, PostgreSQL and the API server are not known here. It is open for
# a process that runs effects or sources, as what these call is in their code. Narrow both in an overlay of your own.
"""
_LAG_SECONDS: Final = 5
"""More of it, on average, asks for another processor."""


class Workloads(Struct, frozen=True, kw_only=True):
    """An application, and where and from what it runs."""

    application: LoadedApplication
    files: Sequence[Path]
    image: str
    inside: str
    """The namespace of the processes."""
    namespaces: Sequence[str] = ()
    """Watched namespaces; none for all."""

    @property
    def name(self) -> str:
        """Begins the names of all objects, and is that of the Secret."""
        return f"levelog-{dns_name(self.application.name)}"

    def secret_keys(self) -> list[str]:
        """The keys of the Secret: an address for each process, so that each is a user of its own."""
        nats = [_key(role, "nats") for role in Role]
        sql = [_key(role, "database") for role in Role if needs_sql(frozenset({role}))]
        return [*nats, *sql, _key("migrate", "database"), KEY_OF_REDACTION]

    def code(self) -> dict[str, str]:
        """Text of each file by its path below the folder of operators, packages whole. Raises ConfigurationError."""
        code: dict[str, str] = {}
        for given in self.files:
            path, root = given.resolve(), _root_of(given)
            top = root / path.relative_to(root).parts[0]  # the package, if it is in one
            is_package = (top / "__init__.py").exists()
            for file in sorted(top.rglob("*.py") if is_package else top.glob("*.py")) if top.is_dir() else [path]:
                place = str(PurePosixPath(file.relative_to(root)))
                if place in code and not is_package:
                    raise ConfigurationError(f"two operator files are named {place}: give one of them another name")
                try:
                    code[place] = file.read_text("utf-8")
                except UnicodeDecodeError as error:
                    raise ConfigurationError(f"{file} is not UTF-8, as a ConfigMap is: {error.reason}") from error
        if (size := sum(len(text.encode()) for text in code.values())) > _MOST_CODE_BYTES:
            raise ConfigurationError(
                f"the operator files have {size:,} bytes, and a ConfigMap takes {_MOST_CODE_BYTES:,}: name fewer files"
            )
        return code

    def parts(self, printed: Printer) -> dict[str, str]:
        """An application whose processes run one by one: the text of each file, by its name."""
        return {
            "rbac.yaml": self._accounts(is_single=False),
            "operators.yaml": printed([self.operators()]),
            "migrate.yaml": printed([self.migration()]),
            **{f"{role}.yaml": printed([self.deployment(role), self.budget(role)]) for role in Role},
            "networkpolicies.yaml": _EGRESS_IS_WIDE + printed(self.policies()),
        }

    def single_parts(self) -> dict[str, str]:
        """The same of an application that one process runs, with embedded servers."""
        is_open = bool(self.application.program.effects or self.application.program.sources)
        policy = self._policy(RUN, None if is_open else (443, 6443), is_scraped=True)
        return {
            "rbac.yaml": self._accounts(is_single=True),
            "operators.yaml": manifests([self.operators()]),
            "run.yaml": manifests([self.single(), self.service(RUN)]),
            "networkpolicies.yaml": _EGRESS_IS_WIDE + manifests([policy]),
        }

    def _accounts(self, *, is_single: bool) -> str:
        return roles_of(
            self.application,
            operator_namespace=self.inside,
            namespaces=tuple(self.namespaces),
            is_single=is_single,
        )

    def operators(self) -> Object:
        """The operator files, as a ConfigMap named after what is in them: other code is a rollout."""
        code = self.code()
        made = self._object("v1", "ConfigMap", f"operators-{_digest(code)}", {})
        del made["spec"]
        data = {data_key(path): Value(f'(.Files.Get "operators/{path}")', code[path]) for path in sorted(code)}
        return made | {"data": data}

    def migration(self) -> Object:
        """The Job that brings the database to the code's revision; named after what it runs, as Jobs do not change.

        In a chart that is what it runs here, and the values that it has there.
        """
        pod = {
            **self._pod("migrate", ["database"]),
            "restartPolicy": "OnFailure",
        }
        spec = {"backoffLimit": 20, "template": self._template("migrate", pod)}  # PostgreSQL may come up later
        digest, values = _digest(with_defaults(spec)), dict[str, None]()
        filled(spec, lambda value: values.setdefault(value.expression))
        of_values = f'(list "{digest}" {" ".join(values)} | toJson | sha256sum | trunc {_LONGEST_HASH})'
        made = self._object("batch/v1", "Job", f"migrate-{digest}", spec)
        made["metadata"]["name"] = Value(f'(printf "{self.name}-migrate-%s" {of_values})', made["metadata"]["name"])
        return made

    def deployment(self, role: Role) -> Object:
        """A process, twice: ingest has a standby, the others share the work."""
        servers = ["nats", "database"] if needs_sql(frozenset({role})) else ["nats"]
        pod = {**self._pod(role, servers), "serviceAccountName": f"{self.name}-{role}"}
        pod["automountServiceAccountToken"] = needs_cluster(frozenset({role}))
        spec: Object = {
            "replicas": chart_value(f"replicas.{role}", 2),
            "selector": {"matchLabels": self._labels(role)},
            "template": self._template(role, pod),
        }
        if role is Role.PROCESS:  # an old one that restarts beside new ones would take over again
            spec["strategy"] = {"type": "Recreate"}
        return self._object("apps/v1", "Deployment", role, spec)

    def single(self) -> Object:
        """One process, with NATS and SQLite embedded, and the volume that holds what they store.

        A StatefulSet makes the next pod once the last one is gone, so that there are never two; on a node that does not
        answer, that is once somebody deletes the pod by force, or the node.
        """
        pod = {**self._pod(RUN, []), "serviceAccountName": f"{self.name}-{RUN}", "automountServiceAccountToken": True}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        spec: Object = {
            "replicas": 1,
            "serviceName": f"{self.name}-{RUN}",
            "selector": {"matchLabels": self._labels(RUN)},
            "template": self._template(RUN, pod),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        }
        return self._object("apps/v1", "StatefulSet", RUN, spec)

    def service(self, process: str) -> Object:
        """The port of metrics, without an address of its own."""
        spec = {"clusterIP": "None", "selector": self._labels(process), "ports": [{"name": "http", "port": _PORT}]}
        return self._object("v1", "Service", process, spec)

    def budget(self, role: Role) -> Object:
        """One process of a kind at a time is evicted."""
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": self._labels(role)}}
        return self._object("policy/v1", "PodDisruptionBudget", role, spec)

    def policies(self) -> list[Object]:
        """Network policies of the pods, in both directions. Nobody here knows what effects and sources call."""
        program, made = self.application.program, list[Object]()
        for role in Role:
            is_open = bool(program.effects if role is Role.ACTUATE else program.sources if role is Role.INGEST else ())
            made.append(self._policy(role, None if is_open else _EGRESS[role], is_scraped=True))
        return [*made, self._policy("migrate", (5432,), is_scraped=False)]

    def autoscaler(self) -> Object:
        """More processors where the log is ahead of them, by a metric of the pods."""
        wanted = {"type": "AverageValue", "averageValue": str(_LAG_SECONDS)}
        metric = {"type": "Pods", "pods": {"metric": {"name": "levelog_log_lag_seconds"}, "target": wanted}}
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{self.name}-{Role.PROCESS}"}
        spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": MOST_PROCESSORS, "metrics": [metric]}
        return self._object("autoscaling/v2", "HorizontalPodAutoscaler", Role.PROCESS, spec)

    def _pod(self, command: str, servers: Sequence[str]) -> Object:
        """A pod as the Pod Security Standard `restricted` wants it, with a root filesystem that is read only."""
        container: Object = {
            "name": command,
            "image": chart_value("image", self.image),
            "args": [command, *(f"{_OPERATORS}/{path}" for path in self._arguments())],
            "env": [
                *self._settings(command),
                *(self._address(command, each) for each in servers),
                chart_value("env", []),
            ],
            "envFrom": chart_value("envFrom", []),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "resources": chart_value(
                f"resources.{command}",
                {
                    "requests": {"cpu": "200m" if command == Role.PROCESS else "100m", "memory": "128Mi"},
                    "limits": {"memory": "256Mi"},
                },
            ),
            "volumeMounts": [
                {"name": "operators", "mountPath": _OPERATORS, "readOnly": True},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            ],
        }
        code = self.operators()["metadata"]["name"]
        items = [{"key": data_key(path), "path": path} for path in sorted(self.code())]
        volumes: list[Object] = [
            {"name": "operators", "configMap": {"name": code, "items": items}},
            {"name": "tmp", "emptyDir": {}},
        ]
        if command == RUN:
            container |= _probed()
            container["resources"] = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
            container["volumeMounts"].append({"name": "data", "mountPath": _DATA})
        elif command in set(Role):
            container |= _probed()
            container["volumeMounts"].append({"name": "keys", "mountPath": _KEYS, "readOnly": True})
            secret = chart_value("redaction.secret", self.name)
            key = {"key": chart_value("redaction.key", KEY_OF_REDACTION), "path": KEY_OF_REDACTION}
            volumes.append({"name": "keys", "secret": {"secretName": secret, "defaultMode": 0o440, "items": [key]}})
        return {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": volumes,
            "nodeSelector": chart_value("nodeSelector", {}),
            "tolerations": chart_value("tolerations", []),
            "imagePullSecrets": chart_value("imagePullSecrets", []),
        }

    def definitions(self) -> list[Object]:
        """The CustomResourceDefinitions of the classes that define a resource."""
        classes = [cls for cls in load_classes(self.files) if is_own(cls)]
        return definitions_of(classes) if classes else []

    def _settings(self, command: str) -> list[Object]:
        level = chart_value("logLevel", str(LogLevel.INFO))
        values: Object = {"log_format": "json", "log_level": level, "application": self.application.name}
        if command == RUN:
            # Below the volume's root, which belongs to whoever made the volume.
            values |= {"listen": f":{_PORT}", "data_dir": f"{_DATA}/levelog"}
        elif command in set(Role):
            values |= {"listen": f":{_PORT}", "redaction_key_file": f"{_KEYS}/{KEY_OF_REDACTION}"}
        if self.namespaces and command in (RUN, Role.INGEST, Role.ACTUATE):
            values["namespace"] = ",".join(self.namespaces)
        return [{"name": variable(name), "value": each} for name, each in values.items()]

    def _address(self, process: str, server: str) -> Object:
        """The variable with the address of a server, from the Secret."""
        secret = chart_value(f"{server}.secret", self.name)
        key = chart_value(f"{server}.keys.{process}", _key(process, server))
        return {"name": variable(f"{server}_url"), "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}

    def _policy(self, process: str, ports: Sequence[int] | None, *, is_scraped: bool) -> Object:
        """Without ports everything may be reached."""
        tcp = [{"protocol": "TCP", "port": port} for port in ports or ()]
        dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        spec = {
            "podSelector": {"matchLabels": self._labels(process)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": _PORT}]}] if is_scraped else [],
            "egress": [{}] if ports is None else [{"ports": [*dns, *tcp]}],
        }
        return self._object("networking.k8s.io/v1", "NetworkPolicy", process, spec)

    def _object(self, api_version: str, kind: str, last: str, spec: Object) -> Object:
        metadata = {"name": f"{self.name}-{last}", "namespace": self.inside, "labels": {"app": self.name}}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def _template(self, process: str, pod: Object) -> Object:
        labels = self._labels(process)
        of_chart = " ".join(f'"{name}" "{text}"' for name, text in labels.items())
        more = Value(f"(merge (dict {of_chart}) .Values.podLabels)", labels)
        return {"metadata": {"labels": more}, "spec": pod}

    def _labels(self, process: str) -> dict[str, str]:
        return {"app": self.name, "process": str(process)}

    def _arguments(self) -> list[str]:
        return [str(PurePosixPath(path.resolve().relative_to(_root_of(path)))) for path in self.files]


def _root_of(given: Path) -> Path:
    """The folder from which operators are imported: that above them, or above the package that they are in."""
    package = package_of(given / "__init__.py" if given.is_dir() else given)
    return package.root if package else given.resolve().parent


def _key(process: str, server: str) -> str:
    return f"{process}-{server}-url"


def data_key(path: str) -> str:
    """A key of a ConfigMap has no slash."""
    return path.replace("/", "__")


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:_LONGEST_HASH]


def _probed() -> Object:
    def ask(path: str) -> Object:
        return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 3}

    return {
        "ports": [{"name": "http", "containerPort": _PORT}],
        "livenessProbe": ask("/healthz"),
        "readinessProbe": {**ask("/readyz"), "periodSeconds": 5},
    }
