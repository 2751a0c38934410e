"""Kubeconfig files."""

from pathlib import Path

import yaml


def write_kubeconfig(path: Path, *, url: str, user: str, token: str, ca_file: Path | None = None) -> Path:
    """Write a file with one cluster, one user with a bearer token and one context, readable by its owner only."""
    trust = {} if ca_file is None else {"certificate-authority": str(ca_file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, **trust}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
