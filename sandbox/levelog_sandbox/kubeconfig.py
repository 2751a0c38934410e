"""The file with which any Kubernetes client reaches a sandbox."""

from pathlib import Path

import msgspec

from levelog_sandbox.access import USER


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig (JSON, which is YAML) for the URL; readable by its owner only."""
    name = "levelog-sandbox"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": USER, "user": {"token": name}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": USER, "namespace": "default"}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
    return path
