"""A new operator's folder: its files are the templates beside this module, with the name filled in."""

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from levelog_base.errors import ConfigurationError
from levelog_base.wire.manifests import as_yaml
from levelog_cli.crds.definitions import definitions_of
from levelog_cli.loading import load_classes

_FILES: Final[Mapping[str, str]] = {
    "operator": "$name.py",
    "tests": "test_$name.py",
    "object": "first.yaml",
    "pyproject": "pyproject.toml",
    "dockerfile": "Dockerfile",
    "workflow": ".github/workflows/test.yaml",
    "gitignore": ".gitignore",
    "readme": "README.md",
}
"""Where each template goes."""
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


def make(kind: str, group: str, inside: Path) -> list[Path]:
    """Write the folder of an operator for objects of a kind, `KafkaTopic` or `shop`; returns its files.

    Folder and module have the kind's name in small letters. Raises ConfigurationError for what cannot name a kind and a
    module, for a folder that is not empty, and for one that cannot be written.
    """
    name = kind.lower()
    _require_name(kind, name)
    kind = kind[0].upper() + kind[1:]
    if len(group) > 200 or _GROUP.fullmatch(group) is None:
        raise ConfigurationError(f"--group {group}: a group is a domain in small letters, such as example.com")
    folder = inside / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is there already, and not empty: choose another name, or remove it")
    classes = ", ".join(sorted(["ConfigMap", kind]))
    words = {"name": name, "kind": kind, "classes": classes, "plural": plural_of(name), "group": group}
    written: list[Path] = []
    for template, target in _FILES.items():
        text = Path(__file__).with_name(f"{template}.template").read_text()
        written.append(_write(folder / Template(target).substitute(words), Template(text).substitute(words)))
    definition = as_yaml(definitions_of(load_classes([folder / f"{name}.py"])))
    return [*written, _write(folder / "crd.yaml", definition)]


def plural_of(name: str) -> str:
    """The plural of an English word, as Kubernetes' own resources have theirs: policies, ingresses, pods."""
    if re.search(r"[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search(r"(s|x|z|ch|sh)$", name) else f"{name}s"


def _require_name(kind: str, name: str) -> None:
    if _KIND.fullmatch(kind) is None:
        said = "a kind is named by letters and digits, in the singular: KafkaTopic, or shop"
        raise ConfigurationError(f"{kind!r}: {said}")
    if name == "configmap":
        raise ConfigurationError(f"{kind}: that is the kind that this operator writes: choose another")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in ("levelog", "msgspec", "texts", "op"):
        raise ConfigurationError(f"{name}: a word of Python's or levelog's own cannot name your module: choose another")


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    return path
