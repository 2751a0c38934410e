"""The folder that `levelog manifests` writes: a kustomize base, and an overlay that scales processors by the lag."""

from collections.abc import Mapping, Sequence
from typing import Final

from levelog_base.wire.manifests import as_yaml
from levelog_cli.deployment.values import Object, manifests
from levelog_cli.deployment.workloads import KEY_OF_REDACTION, RUN, Workloads
from levelog_cli.wiring.roles import Role

_KUSTOMIZATION: Final = "kustomization.yaml"


def contents(workloads: Workloads) -> dict[str, str]:
    """Text of each file, by its path in the folder."""
    patch = as_yaml([[{"op": "remove", "path": "/spec/replicas"}]])
    target = {"kind": "Deployment", "name": f"{workloads.name}-{Role.PROCESS}"}
    scaled = _customized(["../../base", "autoscaler.yaml"]) | {"patches": [{"target": target, "patch": patch}]}
    return {
        **_with_base(workloads, _readme(workloads), workloads.parts(manifests)),
        "overlays/scaled/autoscaler.yaml": manifests([workloads.autoscaler()]),
        f"overlays/scaled/{_KUSTOMIZATION}": manifests([scaled]),
    }


def single(workloads: Workloads) -> dict[str, str]:
    """The same for one process with embedded servers."""
    return _with_base(workloads, _single_readme(workloads), workloads.single_parts())


def _with_base(workloads: Workloads, readme: str, files: Mapping[str, str]) -> dict[str, str]:
    definitions = workloads.definitions()
    base = ({"definitions.yaml": as_yaml(definitions)} if definitions else {}) | dict(files)
    return {
        "README.md": readme,
        **{f"base/{name}": text for name, text in base.items()},
        f"base/{_KUSTOMIZATION}": manifests([_customized(list(base))]),
    }


def _single_readme(workloads: Workloads) -> str:
    return f"""# {workloads.name}

Made by `levelog manifests --single`: one pod, with NATS and SQLite in it, and a volume. The image needs nats-server, as
levelog's Dockerfile builds it with `--target single`. There are no other servers, and no Secret to make:

```console
kubectl create namespace {workloads.inside}
kubectl apply -k base
```

`base/definitions.yaml` has the CustomResourceDefinitions of your classes. What levelog decided, and why:

```console
kubectl -n {workloads.inside} exec {workloads.name}-{RUN}-0 -- levelog levels
```
"""


def _customized(resources: Sequence[str]) -> Object:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [*resources]}


def _readme(workloads: Workloads) -> str:
    keys = [key for key in workloads.secret_keys() if key != KEY_OF_REDACTION]
    literals = "".join(f"  --from-literal {key}={key.split('-')[1]}://… \\\n" for key in keys)
    literals = literals.replace("=database://", "=postgresql://")
    return f"""# {workloads.name}

Made by `levelog manifests`, with the CustomResourceDefinitions of your classes. Before the first time, make the Secret
that the processes read their addresses from. The database in them is for this application alone:

```console
openssl rand -hex 32 > {KEY_OF_REDACTION}
kubectl -n {workloads.inside} create secret generic {workloads.name} \\
{literals}  --from-file {KEY_OF_REDACTION}
```

Then `kubectl apply -k base`, or `kubectl apply -k overlays/scaled`, where an adapter serves the metric
`levelog_log_lag_seconds` of pods.
"""
