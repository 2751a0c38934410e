"""Operators of other people: unmodified, built from their Go modules and kept outside of this repository."""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PINS: Final = Path(__file__).parent / "operators"


def program(name: str) -> Path:
    """The executable of `operators/<name>/go.mod`'s tool, built when it is not there yet: some minutes, once."""
    pins = _PINS / name
    with _place(name, pins / "go.mod", pins / "go.sum") as built:
        if not built.exists():
            package = _go(name, "list", "tool")
            _go(name, "build", "-p=1", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(built), package)
    return built


def environment(name: str) -> Path:
    """The programs of a Python environment with what `operators/<name>/requirements.txt` pins."""
    pinned = _PINS / name / "requirements.txt"
    with _place(name, pinned) as folder:
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin/pip", "install", "--quiet", "--no-deps", "-r", pinned], check=True)
            (folder / "done").touch()
    return folder / "bin"


def source(name: str, module: str) -> Path:
    """The folder of a module of an operator, where Go keeps it: CustomResourceDefinitions are in there."""
    _go(name, "mod", "download", module)
    return Path(_go(name, "list", "-m", "-f", "{{.Dir}}", module))


def source_of_package(programs: Path, package: str) -> Path:
    """The folder of a package in an environment of `environment`."""
    [folder] = programs.parent.glob(f"lib/python3*/site-packages/{package}")
    return folder


@contextmanager
def _place(name: str, *pins: Path) -> Generator[Path, None, None]:
    """Where something is kept that these files pin; one at a time is made."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "levelog" / "wakes"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"{name}-{digest}"


def _go(name: str, *arguments: str) -> str:
    settings = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    command = ["nice", "-n", "15", "go", *arguments]
    return subprocess.run(
        command, cwd=_PINS / name, env=settings, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
