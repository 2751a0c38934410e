"""The programs of a control plane, and Helm: found, or made from Go modules and kept."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

SOURCES = Path(__file__).parent.parent / "controlplane"
HOW_TO_GET_THEM = (
    "kube-apiserver not found: set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver "
    "(setup-envtest makes one), or install Go to build them"
)

_Found = TypeVar("_Found")


class BinariesMissing(Exception):
    """The control plane cannot be started here; the message says in one line how to make it possible."""


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """Paths of executables; kube-controller-manager is optional."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path | None


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    """How `go build`, run in a folder of `SOURCES` whose go.mod pins all versions, makes executables from packages."""

    folder: str
    packages: dict[str, str]

    def build(self, go: str, target: Path) -> None:
        module = SOURCES / self.folder
        for name, package in self.packages.items():
            command = [go, "build", "-mod=readonly", "-trimpath", f"-ldflags=-s -w {self._version_flags()}"]
            built = subprocess.run(
                [*command, "-o", target / name, package],
                cwd=module,
                env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if built.returncode != 0:
                reason = (built.stderr.strip().splitlines() or ["no output"])[-1]
                raise BinariesMissing(f"{name} could not be built in {module}: {reason}")

    def _version_flags(self) -> str:
        """What Kubernetes' own build passes, so that /version tells the truth; etcd has its version in its source."""
        pins = (SOURCES / self.folder / "go.mod").read_text()
        pinned = re.search(r"^\s*k8s\.io/kubernetes v((\d+)\.(\d+)\S*)", pins, re.MULTILINE)
        if pinned is None:
            return ""
        values = {
            "gitVersion": f"v{pinned[1]}",
            "gitMajor": pinned[2],
            "gitMinor": pinned[3],
            "gitTreeState": "clean",
            "gitCommit": "unknown",
        }
        return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())


_RECIPES = (
    _Recipe(folder="etcd", packages={"etcd": "go.etcd.io/etcd/server/v3"}),
    _Recipe(
        folder="kubernetes",
        packages={
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        },
    ),
)
_HELM = (_Recipe(folder="helm", packages={"helm": "helm.sh/helm/v3/cmd/helm"}),)


def find_binaries(announce: Callable[[str], None] = lambda _: None) -> Binaries:
    """KUBEBUILDER_ASSETS if set, else a cached build, else a new build, which takes minutes and is announced.

    Safe to call from several processes at once: one builds, the others wait for it. Raises BinariesMissing.
    """
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        found = _in_folder(Path(assets))
        if found is None:
            raise BinariesMissing(f"KUBEBUILDER_ASSETS is {assets}, which does not hold both etcd and kube-apiserver")
        return found
    folder = cache_folder()
    return _in_folder(folder) or _build(_RECIPES, folder, _in_folder, announce, "etcd and kube-apiserver")


def find_helm(announce: Callable[[str], None] = lambda _: None) -> Path:
    """A cached build, else a new one, as of the control plane. Raises BinariesMissing."""
    folder = cache_folder(_HELM)
    return _helm_in(folder) or _build(_HELM, folder, _helm_in, announce, "helm")


def cache_folder(recipes: Sequence[_Recipe] = _RECIPES) -> Path:
    """Where this pin of versions is kept for this platform: another pin has another folder."""
    digest = hashlib.sha256(repr(recipes).encode())
    for recipe in recipes:
        for name in ("go.mod", "go.sum"):
            digest.update((SOURCES / recipe.folder / name).read_bytes())
    digest.update(f"{sys.platform} {os.uname().machine}".encode())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "levelog" / "controlplane" / digest.hexdigest()[:16]


def _in_folder(folder: Path) -> Binaries | None:
    etcd, kube_apiserver, manager = (folder / name for name in ("etcd", "kube-apiserver", "kube-controller-manager"))
    if not (os.access(etcd, os.X_OK) and os.access(kube_apiserver, os.X_OK)):
        return None
    return Binaries(
        etcd=etcd,
        kube_apiserver=kube_apiserver,
        kube_controller_manager=manager if os.access(manager, os.X_OK) else None,
    )


def _helm_in(folder: Path) -> Path | None:
    return helm if os.access(helm := folder / "helm", os.X_OK) else None


def _build(
    recipes: Sequence[_Recipe],
    folder: Path,
    find: Callable[[Path], _Found | None],
    announce: Callable[[str], None],
    what: str,
) -> _Found:
    go = shutil.which("go")
    if go is None:
        raise BinariesMissing(HOW_TO_GET_THEM if recipes is _RECIPES else f"{what} not found: install Go to build it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = find(folder)
        if found is not None:
            return found
        announce(f"building {what} into {folder}: some minutes, once")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
            target = Path(scratch) / "bin"
            target.mkdir()
            for recipe in recipes:
                recipe.build(go, target)
            target.rename(folder)
    found = find(folder)
    if found is None:
        raise BinariesMissing(f"{folder} is incomplete after a build: remove it and try again")
    return found


if __name__ == "__main__":
    print(find_binaries(print))
