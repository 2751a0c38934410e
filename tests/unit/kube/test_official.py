"""The official client is loaded in part by levelog, and whole by whoever imports it."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys, types
{imports}
whole = kubernetes_asyncio
print(json.dumps({{
    "official_modules": MODELS,
    "models": hasattr(whole.client, "V1Pod") and callable(whole.client.CoreV1Api),
    "rest": whole.client.rest.RESTClientObject.__name__,
    "configuration": whole.client.configuration.Configuration.__name__,
    "same": levelog_kube.official.Configuration is whole.client.Configuration,
}}))
"""
COUNT = "MODELS = sum(name.startswith('kubernetes_asyncio') for name in sys.modules)"


@pytest.mark.parametrize(
    ("imports", "official_modules", "is_same"),
    [
        (f"import levelog_kube.client, levelog_kube.official\n{COUNT}\nimport kubernetes_asyncio", 0, False),
        ("import kubernetes_asyncio\nimport levelog_kube.client, levelog_kube.official\nMODELS = -1", -1, True),
    ],
    ids=["after levelog", "before levelog"],
)
def test_an_operator_gets_the_whole_client_before_and_after(
    imports: str, official_modules: int, *, is_same: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(imports=imports)], check=True, capture_output=True, text=True
    )
    expected = {"models": True, "rest": "RESTClientObject", "configuration": "Configuration"}
    assert json.loads(done.stdout) == expected | {"official_modules": official_modules, "same": is_same}


def test_levelog_loads_no_models() -> None:
    script = """
import gc, levelog_kube.client
kinds = [str(kind.__module__) for kind in gc.get_objects() if isinstance(kind, type)]
print(sum(name.startswith("kubernetes_asyncio") for name in kinds), sum("client.models" in name for name in kinds))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    official, models = map(int, done.stdout.split())
    assert official > 0
    assert models == 0
