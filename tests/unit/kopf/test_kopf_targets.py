"""Which resource the selectors of a Kopf decorator mean, and that nobody loads Kopf's names unasked."""

import subprocess
import sys
from typing import Any

import pytest

from levelog import OperatorError
from levelog.compat.kopf.kopftargets import target

SHOPS = ("example.com", "v1", "shops")


@pytest.mark.parametrize(
    ("given", "named", "means"),
    [
        (SHOPS, {}, SHOPS),
        (("example.com/v1", "shops"), {}, SHOPS),
        (("shops.v1.example.com",), {}, SHOPS),
        ((), {"group": "example.com", "version": "v1", "plural": "shops"}, SHOPS),
        (("pods",), {}, ("", "v1", "pods")),
        (("po",), {}, ("", "v1", "pods")),
        (("Pod",), {}, ("", "v1", "pods")),
        (("v1", "pod"), {}, ("", "v1", "pods")),
        (("", "v1", "pods"), {}, ("", "v1", "pods")),
        (("apps", "deploy"), {}, ("apps", "v1", "deployments")),
        (("deployments.apps",), {}, ("apps", "v1", "deployments")),
        ((), {"kind": "Ingress"}, ("networking.k8s.io", "v1", "ingresses")),
        (("apps", "v1beta2", "deployments"), {}, ("apps", "v1beta2", "deployments")),
        (("shops.example.com",), {}, None),
        (("example.com", "shops"), {}, None),
        (("shops",), {}, None),
        (("example.com", "v1", "Shop"), {}, None),
        ((), {}, None),
        ((), {"category": "all"}, None),
        (("a", "v1", "b", "c"), {}, None),
    ],
)
def test_a_selector_names_one_resource_or_is_refused(
    given: tuple[str, ...], named: dict[str, Any], means: tuple[str, str, str] | None
) -> None:
    if means is None:
        with pytest.raises(OperatorError, match=r"^here: "):
            target("here", given, named)
        return
    resource = target("here", given, named).resource_type
    assert (resource.group, resource.version, resource.plural) == means


def test_a_resource_has_one_class() -> None:
    assert target("", SHOPS, {}) is target("", ("shops.v1.example.com",), {})
    assert target("", ("namespaces",), {}).resource_type.scope == "Cluster"
    assert target("", ("example.com", "v1", "policies"), {}).resource_type.kind == "Policy"


def test_importing_levelog_does_not_load_kopfs_names() -> None:
    program = "import sys, levelog; print(*(name for name in sys.modules if 'kopf' in name))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == ""
