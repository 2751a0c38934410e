"""The folder that `levelog manifests` writes: a kustomize base, and an overlay that scales processors by the lag."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from levelog.errors import ConfigurationError
from levelog_cli.deployment.workloads import KEY_OF_REDACTION, Workloads
from levelog_cli.wiring.manifests import roles_of
from levelog_cli.wiring.roles import Role

_KUSTOMIZATION: Final = "kustomization.yaml"
_PARTS: Final = ("base", "overlays", "README.md")
"""What stands at the top of the folder."""


def write(workloads: Workloads, folder: Path, *, is_overwriting: bool) -> list[Path]:
    """Write the files, the same for the same operators and options, and return their paths.

    Raises ConfigurationError if the folder holds something and is not to be overwritten, or holds what no earlier call
    can have written.
    """
    files = contents(workloads)
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        if found and not is_overwriting:
            raise ConfigurationError(f"{folder} is not empty: give another folder, or --overwrite")
        if foreign := [name for name in found if name not in _PARTS]:
            raise ConfigurationError(
                f"{folder} holds {', '.join(foreign)}, not made by this command: give another folder"
            )
        for part in ("base", "overlays"):
            if (folder / part).exists():
                shutil.rmtree(folder / part)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"manifests cannot be written to {folder}: {error}") from error
    return [folder / name for name in files]


def contents(workloads: Workloads) -> dict[str, str]:
    """Text of each file, by its path in the folder."""
    deployments = {f"{role}.yaml": [workloads.deployment(role), workloads.budget(role)] for role in Role}
    base: dict[str, str] = {
        "rbac.yaml": roles_of(
            workloads.application, accounts_in=workloads.inside, namespaces=tuple(workloads.namespaces)
        ),
        "operators.yaml": _documents([workloads.operators()]),
        "migrate.yaml": _documents([workloads.migration()]),
        **{name: _documents(objects) for name, objects in deployments.items()},
        "networkpolicies.yaml": _documents(workloads.policies()),
    }
    scaled = {
        "autoscaler.yaml": _documents([workloads.autoscaler()]),
        _KUSTOMIZATION: _documents([_scaled(f"{workloads.name}-{Role.PROCESS}")]),
    }
    return {
        "README.md": _readme(workloads),
        **{f"base/{name}": text for name, text in base.items()},
        f"base/{_KUSTOMIZATION}": _documents([_resources(base)]),
        **{f"overlays/scaled/{name}": text for name, text in scaled.items()},
    }


def _resources(files: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}


def _scaled(processors: str) -> dict[str, Any]:
    """The base, with the autoscaler instead of a number of processors."""
    target = {"kind": "Deployment", "name": processors}
    patch = yaml.safe_dump([{"op": "remove", "path": "/spec/replicas"}], sort_keys=False)
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../base", "autoscaler.yaml"],
        "patches": [{"target": target, "patch": patch}],
    }


def _readme(workloads: Workloads) -> str:
    keys = [key for key in workloads.secret_keys() if key != KEY_OF_REDACTION]
    literals = "".join(f"  --from-literal {key}={key.split('-')[1]}://… \\\n" for key in keys)
    literals = literals.replace("=database://", "=postgresql://")
    return f"""# {workloads.name}

Made by `levelog manifests`. Before the first time, make the Secret that the processes read their addresses from:

```console
openssl rand -hex 32 > {KEY_OF_REDACTION}
kubectl -n {workloads.inside} create secret generic {workloads.name} \\
{literals}  --from-file {KEY_OF_REDACTION}
```

Then `kubectl apply -k base`, or `kubectl apply -k overlays/scaled`, where an adapter serves the metric
`levelog_log_lag_seconds` of pods.
"""


class _Dumper(yaml.SafeDumper):
    """Writes what stands twice twice, and texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, lambda dumper, text: _text(dumper, str(text)))


def _documents(objects: Iterable[Mapping[str, Any]]) -> str:
    return "---\n".join(
        yaml.dump(dict(each), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) for each in objects
    )
